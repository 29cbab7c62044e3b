package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// request asks the broker on the host for a socket that listens, or for one that is connected; the reply has the socket
// or an error. A request to connect brings a socket of its own for the reply, because it may take long.
type request struct {
	Listen string `json:"listen,omitempty"`
	Dial   string `json:"dial,omitempty"`
}

type reply struct {
	Error string `json:"error,omitempty"`
	InUse bool   `json:"inUse,omitempty"` // the address is in use: an error that callers recognize
}

// serveBroker answers requests until the process inside closes the socket.
func serveBroker(conn *net.UnixConn, dial Dialer) {
	for {
		var q request
		back, err := receive(conn, &q)
		if err != nil {
			return
		}
		if back != nil {
			go hostDial(back, q.Dial, dial)
			continue
		}
		f, err := hostListen(q.Listen)
		if err != nil {
			err = send(conn, reply{Error: err.Error(), InUse: errors.Is(err, syscall.EADDRINUSE)})
		} else {
			err = send(conn, reply{}, f)
			f.Close() // the socket is theirs alone: it ends when they close it
		}
		if err != nil {
			return
		}
	}
}

// hostDial connects and sends the connection, unless the process inside closes the socket for the reply before.
func hostDial(back *os.File, addr string, dial Dialer) {
	conn, err := unixConn(back)
	if err != nil {
		return
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = conn.Read(make([]byte, 1)) // nothing is sent: it ends when either side closes
	}()
	to, err := dial.connect(ctx, addr)
	if err != nil {
		_ = send(conn, reply{Error: err.Error()}) // the client may have given up
		return
	}
	defer to.Close()
	socket, ok := to.(interface{ File() (*os.File, error) })
	if !ok {
		_ = send(conn, reply{Error: fmt.Sprintf("connect to %s: a %T is no socket", addr, to)})
		return
	}
	f, err := socket.File()
	if err != nil {
		_ = send(conn, reply{Error: err.Error()})
		return
	}
	defer f.Close()
	_ = send(conn, reply{}, f)
}

func hostListen(addr string) (*os.File, error) {
	if err := checkAddr(addr); err != nil { // checked here too: this process enforces it
		return nil, err
	}
	l, err := net.Listen("tcp4", addr)
	if err != nil {
		return nil, err
	}
	defer l.Close() // File returns a copy
	return l.(*net.TCPListener).File()
}

// broker is the inner end of the conversation.
type broker struct {
	mu   sync.Mutex // one request at a time
	conn *net.UnixConn
}

func (b *broker) listen(addr string) (net.Listener, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fail := func(err error) (net.Listener, error) {
		return nil, fmt.Errorf("listen on the host's %s: %w", addr, err)
	}
	if err := send(b.conn, request{Listen: addr}); err != nil {
		return fail(err)
	}
	var r reply
	f, err := receive(b.conn, &r)
	switch {
	case err != nil:
		return fail(err)
	case r.InUse:
		return fail(syscall.EADDRINUSE)
	case r.Error != "":
		return fail(errors.New(r.Error))
	case f == nil:
		return fail(errors.New("the reply carried no socket"))
	}
	defer f.Close() // FileListener has a copy
	l, err := net.FileListener(f)
	if err != nil {
		return fail(err)
	}
	return l, nil
}

func (b *broker) dial(ctx context.Context, addr string) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "reply")
	conn, err := unixConn(os.NewFile(uintptr(fds[0]), "reply"))
	if err != nil {
		theirs.Close()
		return nil, err
	}
	defer conn.Close()
	b.mu.Lock()
	err = send(b.conn, request{Dial: addr}, theirs)
	b.mu.Unlock()
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var r reply
	f, err := receive(conn, &r)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("connect to %s: %w", addr, context.Cause(ctx))
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	case r.Error != "":
		return nil, errors.New(r.Error)
	case f == nil:
		return nil, fmt.Errorf("connect to %s: the reply carried no socket", addr)
	}
	defer f.Close() // FileConn has a copy
	return net.FileConn(f)
}

// ownNetwork is the lab's network namespace, with a broker on the host.
type ownNetwork struct {
	registry
	broker *broker
	pid    int
}

// portTries bounds the search for a port that is free inside and outside when the system chooses it.
const portTries = 20

func (n *ownNetwork) Listen(ctx context.Context, addr string) (net.Listener, error) {
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		host, err := n.broker.listen(addr)
		if err != nil {
			return nil, err
		}
		chosen := host.Addr().String()
		var lc net.ListenConfig
		in, err := lc.Listen(ctx, "tcp4", chosen)
		if err != nil {
			host.Close()
			if chosen != addr && try < portTries && errors.Is(err, syscall.EADDRINUSE) {
				continue
			}
			return nil, fmt.Errorf("listen inside the lab: %w", err)
		}
		n.add(chosen)
		return &registered{Listener: merge(in, host), registry: &n.registry}, nil
	}
}

func (n *ownNetwork) Expose(_ context.Context, addr string) (io.Closer, error) {
	if err := checkAddr(addr); err != nil {
		return nil, err
	}
	host, err := n.broker.listen(addr)
	if err != nil {
		return nil, err
	}
	go tunnel.Serve(context.Background(), host, tunnel.To(addr))
	n.add(addr)
	return &registered{Listener: host, registry: &n.registry}, nil
}

func (n *ownNetwork) Dial(ctx context.Context, addr string) (net.Conn, error) {
	return n.broker.dial(ctx, addr)
}

func (n *ownNetwork) Isolation() string { return "network namespace" }

func (n *ownNetwork) Own() bool { return true }

func (n *ownNetwork) PID() int { return n.pid }
