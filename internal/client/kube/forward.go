package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// DialPod connects to a port of a Pod through the API server and the Pod's kubelet, as kubectl port-forward does,
// without an address of this machine that others could use. In contrast to the API server's proxy it leaves what is
// sent alone: that one removes the header Authorization.
func (c *Cluster) DialPod(ctx context.Context, namespace, pod string, port int) (net.Conn, error) {
	what := fmt.Sprintf("forward port %d of Pod %s/%s", port, namespace, pod)
	connection, err := c.upgrade(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/portforward", url.PathEscape(namespace),
		url.PathEscape(pod)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	header := http.Header{}
	header.Set(corev1.PortHeader, strconv.Itoa(port))
	header.Set(corev1.PortForwardRequestIDHeader, "0")
	header.Set(corev1.StreamType, corev1.StreamTypeError)
	failed, err := connection.CreateStream(header)
	if err != nil {
		connection.Close()
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	failed.Close() // nothing is written to it
	f := &forwarded{connection: connection, what: what, failed: make(chan string, 1)}
	go func() {
		said, _ := io.ReadAll(io.LimitReader(failed, maxForwardError)) // an error is the end of the connection
		f.failed <- strings.TrimSpace(string(said))
	}()
	header.Set(corev1.StreamType, corev1.StreamTypeData)
	if f.Stream, err = connection.CreateStream(header); err != nil {
		err = f.explain(err) // the kubelet may refuse it before the stream is known to be there
		connection.Close()
		return nil, err
	}
	return f, nil
}

// maxForwardError is far above the sentence with which a kubelet says why it has no connection.
const maxForwardError = 4 << 10

// upgrade opens a connection with streams. It ends when ctx does, also where the API server is silent.
func (c *Cluster) upgrade(ctx context.Context, path string) (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.plain)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.config.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	type result struct {
		connection httpstream.Connection
		err        error
	}
	done := make(chan result, 1)
	go func() {
		connection, _, err := spdy.Negotiate(upgrader, &http.Client{Transport: transport}, request,
			portforward.PortForwardProtocolV1Name)
		done <- result{connection, err}
	}()
	select {
	case r := <-done:
		return r.connection, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.connection != nil {
				r.connection.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// forwarded is a connection to a port of a Pod.
type forwarded struct {
	httpstream.Stream
	connection httpstream.Connection
	what       string
	failed     chan string // what the kubelet said when it ended; empty: nothing went wrong
}

// Read reads what the program in the Pod sends. Where the kubelet has no connection to it, the error says why.
func (f *forwarded) Read(p []byte) (int, error) {
	n, err := f.Stream.Read(p)
	if n > 0 {
		return n, err
	}
	return n, f.explain(err)
}

// Write sends to the program in the Pod. Its error says why as that of Read does: what is sent may meet the end first.
func (f *forwarded) Write(p []byte) (int, error) {
	n, err := f.Stream.Write(p)
	return n, f.explain(err)
}

// explain returns the reason of the kubelet in place of the end of the connection, where there is one.
func (f *forwarded) explain(err error) error {
	if err == nil {
		return nil
	}
	select {
	case said := <-f.failed:
		f.failed <- said
		if said != "" {
			return fmt.Errorf("%s: %s", f.what, said)
		}
	case <-time.After(forwardErrorWithin):
	}
	if err == io.EOF { // how a Reader says that all was read
		return err
	}
	return fmt.Errorf("%s: %w", f.what, err)
}

// forwardErrorWithin is how long the reason may take to come after the end that it explains: it is sent before.
const forwardErrorWithin = time.Second

// Close ends the connection.
func (f *forwarded) Close() error { return f.connection.Close() }

// LocalAddr implements net.Conn.
func (*forwarded) LocalAddr() net.Addr { return forwardedAddress("slipway") }

// RemoteAddr implements net.Conn.
func (f *forwarded) RemoteAddr() net.Addr { return forwardedAddress(f.what) }

// SetDeadline implements net.Conn. There are none: who reads closes the connection when its time is up.
func (*forwarded) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (*forwarded) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (*forwarded) SetWriteDeadline(time.Time) error { return nil }

type forwardedAddress string

// Network implements net.Addr.
func (forwardedAddress) Network() string { return "portforward" }

// String implements net.Addr.
func (a forwardedAddress) String() string { return string(a) }
