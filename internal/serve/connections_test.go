package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// from is a connection of an address.
type from struct {
	net.Conn
	address string
	closed  bool
}

func (f *from) RemoteAddr() net.Addr { return address(f.address) }
func (f *from) Close() error         { f.closed = true; return nil }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// Where there are too many connections, the one is closed with which the least is lost, and never one with an
// authenticated request in flight.
func TestWhichConnectionIsClosed(t *testing.T) {
	c := newConnections(nil, 6, 4, slog.New(slog.DiscardHandler))
	open := func(client string) (*connection, *from) {
		t.Helper()
		conn := &from{address: client + ":1"}
		admitted, closes := c.admit(conn)
		if closes != nil {
			_ = closes.Close()
		}
		return admitted, conn
	}
	known := func(one *connection, busy bool) {
		authenticated(context.WithValue(t.Context(), connectionKey{}, one))
		c.notice(one, http.StateActive)
		if !busy {
			c.notice(one, http.StateIdle)
		}
	}
	stream, streamConn := open("192.0.2.1")
	known(stream, true)
	kept, keptConn := open("192.0.2.1")
	known(kept, false)
	slow, slowConn := open("192.0.2.1")
	c.notice(slow, http.StateActive)
	_, idle := open("192.0.2.1")
	var last *connection
	for i, first := range []*from{idle, nil, nil, nil} { // the idle one, then each other idle one
		var conn *from
		last, conn = open("192.0.2.1")
		if first != nil && !first.closed || streamConn.closed || keptConn.closed || slowConn.closed || conn.closed {
			t.Fatalf("connection %d: idle closed: %t, stream: %t, kept: %t, slow: %t", i, idle.closed, streamConn.closed,
				keptConn.closed, slowConn.closed)
		}
	}
	c.notice(last, http.StateActive)
	_, fresh := open("192.0.2.1") // all four are in use: the oldest request of which nothing was authenticated ends
	if !slowConn.closed || keptConn.closed || fresh.closed {
		t.Errorf("slow closed: %t, kept: %t, new: %t", slowConn.closed, keptConn.closed, fresh.closed)
	}
	other, _ := open("192.0.2.2") // another address is not hindered
	another, _ := open("192.0.2.2")
	if other == nil || another == nil || len(c.open) != 6 {
		t.Errorf("%d connections are open", len(c.open))
	}
	if _, conn := open("192.0.2.3"); conn.closed || len(c.open) != 6 || !fresh.closed {
		t.Errorf("in total: %d are open, the new one is closed: %t", len(c.open), conn.closed)
	}
	for one := range c.open {
		known(one, true)
	}
	if admitted, closes := c.admit(&from{address: "192.0.2.4:1"}); admitted != nil || closes == nil {
		t.Error("a connection with an authenticated request in flight was closed for another one")
	}
	for one := range c.open {
		_ = one.Close()
		_ = one.Close()
	}
	if len(c.open) != 0 || len(c.from) != 0 {
		t.Errorf("%d are open, %d addresses are counted", len(c.open), len(c.from))
	}
}

// listening has the desk's server listen for requests and for probes, until the end of the test.
func (d *desk) listening() (requests, probes string) {
	d.t.Helper()
	var at [2]net.Listener
	for i := range at {
		var err error
		if at[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			d.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	done := make(chan error, 1)
	go func() { done <- d.server.Serve(ctx, at[0], at[1]) }()
	d.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			d.t.Error(err)
		}
	})
	return at[0].Addr().String(), at[1].Addr().String()
}

// hold opens connections, sends something on each, and keeps them open until the end of the test.
func hold(t *testing.T, address string, many int, text string) {
	t.Helper()
	for range many {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn, text) // an earlier one may be closed meanwhile
	}
}

// Connections of a client without a token, more than serve has, do not keep others from being answered, and do not end
// what is in flight: an authenticated stream of events.
func TestManyConnectionsWithoutAToken(t *testing.T) {
	for name, text := range map[string]string{
		"that send nothing":           "",
		"after a request":             "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"in the middle of headers":    "GET /healthz HTTP/1.1\r\nHost: local",
		"in the middle of a login":    "POST " + prefix + "/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
		"of probes, after a request":  "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"with a token that is wrong":  "GET " + prefix + "/clusters HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n",
		"of which one ends a request": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, t.TempDir())
			t.Cleanup(d.close)
			// What holds connections must not end by a deadline of the server, which would let others in as well.
			d.server.slow.header, d.server.slow.request = time.Hour, time.Hour
			requests, probes := d.listening()
			run := d.start(waitingTarget)
			d.until(run.ID, waits)
			stream := d.open(requests, runsPath+"/"+run.ID+"/events")
			hold(t, requests, connectionsMost+50, text)
			hold(t, probes, probesMost+10, text)
			for where, address := range map[string]string{"its own listener": probes, "the listener of requests": requests} {
				for _, path := range []string{"/healthz", "/readyz"} {
					if status := d.once(address, path); status != http.StatusOK {
						t.Errorf("%s at %s: %d", path, where, status)
					}
				}
			}
			if status := d.once(requests, prefix+"/clusters"); status != http.StatusOK {
				t.Errorf("a request with the token: %d", status)
			}
			if err := os.WriteFile(filepath.Join(d.dir, gate), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			d.until(run.ID, inState(Finished))
			if all, err := io.ReadAll(stream); err != nil || !strings.Contains(string(all), "event: end") {
				t.Errorf("the stream was cut off: %v\n%s", err, all)
			}
		})
	}
}

// open sends a request with the token on a connection of its own, and returns the body of the answer.
func (d *desk) open(address, path string) io.Reader {
	d.t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, d.token)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		d.t.Fatalf("%s: %v", path, err)
	}
	if response.StatusCode != http.StatusOK {
		d.t.Fatalf("%s: %s", path, response.Status)
	}
	return response.Body
}

// once sends a request with the token on a connection of its own, and returns the status of the answer.
func (d *desk) once(address, path string) int {
	d.t.Helper()
	client := &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(d.t.Context(), "GET", "http://"+address+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	d.bearer(r)
	response, err := client.Do(r)
	if err != nil {
		d.t.Errorf("%s: %v", path, err)
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// The listener of probes answers those, and nothing else, whoever asks.
func TestTheListenerOfProbes(t *testing.T) {
	d := newDesk(t, t.TempDir())
	t.Cleanup(d.close)
	_, probes := d.listening()
	for _, r := range d.server.table() {
		method, path := split(r, "run")
		want := http.StatusNotFound
		if r.access == probe {
			want = http.StatusOK
		}
		if method != "GET" {
			continue
		}
		if status := d.once(probes, path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	for _, path := range []string{"/healthz", prefix + "/session", runsPath} {
		response, err := http.Post("http://"+probes+path, "application/json", strings.NewReader(`{"token":"`+d.token+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode < 400 || response.Header.Get("Set-Cookie") != "" {
			t.Errorf("POST %s: %d", path, response.StatusCode)
		}
	}
}
