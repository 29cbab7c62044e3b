package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type resolverFunc func(host string, port int32) ([]string, error)

func (f resolverFunc) Resolve(_ context.Context, host string, port int32) (Backend, error) {
	addrs, err := f(host, port)
	return Backend{Addresses: addrs}, err
}

// serve runs a proxy until the test's end and returns it with its socket.
func serve(t *testing.T, resolver Resolver) (*Proxy, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "egress") // a test's own folder may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s", "egress.sock")
	l, err := Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	p := New(resolver, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p, socket
}

// connect asks the proxy for a target as kube-apiserver does.
func connect(t *testing.T, socket, target string) (*net.UnixConn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: test\r\n\r\n", target)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn), reader, answer
}

// listen serves one connection after another and returns the address.
func listen(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go handle(conn.(*net.TCPConn))
		}
	}()
	return l.Addr().String()
}

func TestHalfClose(t *testing.T) {
	// The backend answers only once the client has said everything, then says everything itself.
	addr := listen(t, func(c *net.TCPConn) {
		defer c.Close()
		all, _ := io.ReadAll(c)
		fmt.Fprintf(c, "you said %q", all)
	})
	dead := listen(t, func(*net.TCPConn) {})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close() // so that the first address refuses
	asked := ""
	p, socket := serve(t, resolverFunc(func(host string, port int32) ([]string, error) {
		asked = fmt.Sprint(host, " ", port)
		return []string{closed.Addr().String(), addr, dead}, nil
	}))
	conn, reader, answer := connect(t, socket, "127.129.96.7:443")
	if answer.StatusCode != http.StatusOK || asked != "127.129.96.7 443" {
		t.Fatalf("%s for %q", answer.Status, asked)
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(reader)
	if err != nil || string(said) != `you said "hello"` {
		t.Errorf("%q, %v", said, err)
	}
	if s := p.Stats(); s.Tunnels != 1 || len(s.Refusals) != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestBackendsEndEndsTheTunnel(t *testing.T) {
	addr := listen(t, func(c *net.TCPConn) {
		io.WriteString(c, "bye")
		c.Close()
	})
	_, socket := serve(t, resolverFunc(func(string, int32) ([]string, error) { return []string{addr}, nil }))
	_, reader, _ := connect(t, socket, "127.129.96.7:443")
	if said, err := io.ReadAll(reader); err != nil || string(said) != "bye" {
		t.Errorf("%q, %v", said, err)
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	p, socket := serve(t, resolverFunc(func(host string, port int32) ([]string, error) {
		return nil, errors.New("Service a/b has\nno Pod")
	}))
	for range 3 {
		_, _, answer := connect(t, socket, "127.129.96.7:443")
		body, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusBadGateway ||
			answer.Status != "502 Bad Gateway: Service a/b has no Pod" || string(body) != "Service a/b has no Pod\n" {
			t.Errorf("%q, %q, %v", answer.Status, body, err)
		}
	}
	if _, _, answer := connect(t, socket, "nonsense"); answer.StatusCode != http.StatusBadGateway {
		t.Errorf("a target without a port: %s", answer.Status)
	}
	s := p.Stats()
	if len(s.Refusals) != 2 || s.Refusals[0].Count != 3 || s.Refusals[0].Reason != "Service a/b has no Pod" ||
		s.Tunnels != 0 {
		t.Errorf("stats %+v", s)
	}
	for i := range 3 * maxRefusals {
		p.record(fmt.Sprint("target", i), "reason")
	}
	if got := len(p.Stats().Refusals); got != maxRefusals {
		t.Errorf("%d refusals are remembered; want %d", got, maxRefusals)
	}
}

func TestOnlyConnect(t *testing.T) {
	_, socket := serve(t, resolverFunc(func(string, int32) ([]string, error) { return nil, errors.New("unused") }))
	client := &http.Client{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}},
	}
	answer, err := client.Get("http://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", answer.Status)
	}
}

func TestServeEndsWithItsTunnels(t *testing.T) {
	silent := listen(t, func(c *net.TCPConn) { io.Copy(io.Discard, c) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := New(resolverFunc(func(string, int32) ([]string, error) { return []string{silent}, nil }), nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Serve(ctx, l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
	if _, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect}); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("an open tunnel keeps the proxy from ending")
	}
}

func TestListen(t *testing.T) {
	if _, err := Listen("/" + strings.Repeat("x", maxSocketPath)); err == nil ||
		!strings.Contains(err.Error(), "shorter folder") {
		t.Errorf("a path that is too long: %v", err)
	}
	_, socket := serve(t, resolverFunc(func(string, int32) ([]string, error) { return nil, errors.New("first") }))
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info.Mode(), err)
	}
	again, err := Listen(socket) // as after a crash
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
