package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// connections bounds how many connections a listener has, in total and from one address. A new connection is always
// accepted at once: where there are too many, another one is closed for it, the oldest of those that matter least (see
// connection.rank). Only requests that have been authenticated keep their connections; where all are in use by such,
// the new one is closed.
type connections struct {
	net.Listener
	total, each int
	log         *slog.Logger

	mu    sync.Mutex
	open  map[*connection]struct{}
	from  map[string]int // open connections by the address of the client
	count uint64         // of changes: what changed earlier has a smaller one
	told  rate.Sometimes
}

// connection is an open one.
type connection struct {
	net.Conn
	of     *connections
	client string

	changed uint64 // when it was opened, or its last request ended
	busy    bool   // a request is in flight
	known   bool   // a request was authenticated
}

func newConnections(listener net.Listener, total, each int, log *slog.Logger) *connections {
	return &connections{Listener: listener, total: total, each: each, log: log, open: map[*connection]struct{}{},
		from: map[string]int{}, told: rate.Sometimes{Interval: time.Minute}}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		admitted, closes := c.admit(conn)
		if closes != nil {
			_ = closes.Close()
		}
		if admitted != nil {
			return admitted, nil
		}
	}
}

// admit takes a connection in, and returns besides which one to close. It returns nil and the new one where that has no
// place.
func (c *connections) admit(conn net.Conn) (admitted *connection, closes net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := auth.ClientAt(conn.RemoteAddr().String())
	var least *connection
	full := c.from[client] >= c.each || len(c.open) >= c.total
	if full {
		of := client
		if c.from[client] < c.each {
			of = ""
		}
		c.told.Do(func() {
			c.log.Warn("too many connections are open, so idle ones are closed", "client", client,
				"open", len(c.open), "ofClient", c.from[client])
		})
		if least = c.least(of); least == nil {
			return nil, conn
		}
		c.remove(least)
		closes = least.Conn
	}
	c.count++
	admitted = &connection{Conn: conn, of: c, client: client, changed: c.count}
	c.open[admitted] = struct{}{}
	c.from[client]++
	return admitted, closes
}

// least is the connection to close, among those of a client, or among all where that is empty; nil: all are needed.
func (c *connections) least(client string) (least *connection) {
	for one := range c.open {
		if one.rank() == needed || client != "" && one.client != client {
			continue
		}
		if least == nil || one.rank() < least.rank() || one.rank() == least.rank() && one.changed < least.changed {
			least = one
		}
	}
	return least
}

// needed is the rank of connections that are not closed for others.
const needed = 3

// rank orders connections by what is lost with them: nothing was authenticated and no request is in flight, nothing was
// authenticated, no request is in flight.
func (c *connection) rank() int {
	rank := 0
	if c.busy {
		rank++
	}
	if c.known {
		rank += 2
	}
	return rank
}

func (c *connections) remove(one *connection) {
	if _, is := c.open[one]; !is {
		return
	}
	delete(c.open, one)
	if c.from[one.client]--; c.from[one.client] == 0 {
		delete(c.from, one.client)
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// notice is the ConnState of an http.Server.
func (c *connections) notice(conn net.Conn, state http.ConnState) {
	one := connectionOf(conn)
	if one == nil || state != http.StateActive && state != http.StateIdle {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	one.busy, one.changed = state == http.StateActive, c.count
}

// connectionKey is the key of a request's connection, in its context.
type connectionKey struct{}

// with is the ConnContext of an http.Server.
func (c *connections) with(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connectionOf(conn))
}

func connectionOf(conn net.Conn) *connection {
	if over, is := conn.(*tls.Conn); is {
		conn = over.NetConn()
	}
	one, _ := conn.(*connection)
	return one
}

// authenticated keeps the connection of a request from being closed for another one while the request is in flight.
func authenticated(ctx context.Context) {
	one, _ := ctx.Value(connectionKey{}).(*connection)
	if one == nil { // of a test without a listener
		return
	}
	one.of.mu.Lock()
	defer one.of.mu.Unlock()
	one.known = true
}
