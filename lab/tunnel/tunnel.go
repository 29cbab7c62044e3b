// Package tunnel joins connections: of load balancers, proxies and forwarded ports.
package tunnel

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Serve joins each connection that l accepts with the one that connect returns, until l is closed. A connection for
// which there is none is closed, which is how a port without a program behind it answers.
func Serve(ctx context.Context, l net.Listener, connect func(context.Context) (net.Conn, error)) {
	var open sync.WaitGroup
	defer open.Wait()
	for {
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // too many open files, which passes
			case <-ctx.Done():
				return
			case <-time.After(acceptAgain):
			}
			continue
		}
		open.Go(func() {
			backend, err := connect(ctx)
			if err != nil {
				client.Close()
				return
			}
			Join(ctx, client, client, backend)
		})
	}
}

// acceptAgain is how long Serve waits after a connection that it could not accept.
const acceptAgain = 10 * time.Millisecond

// To connects to an address.
func To(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp4", address)
	}
}

// Join copies between two connections in both directions, until both have ended or ctx is done, and closes them. It
// passes an orderly end of one on as a half-close, so that its peer can still send; a broken one ends both. fromClient
// reads what the client sends: the connection itself, or a reader that has read ahead.
func Join(ctx context.Context, client net.Conn, fromClient io.Reader, backend net.Conn) {
	end := func() {
		client.Close()
		backend.Close()
	}
	defer end()
	defer context.AfterFunc(ctx, end)()
	pass := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			_ = half.CloseWrite() // it may have closed already
			return
		}
		end()
	}
	var sending sync.WaitGroup
	sending.Go(func() { pass(backend, fromClient) })
	pass(client, backend)
	sending.Wait()
}
