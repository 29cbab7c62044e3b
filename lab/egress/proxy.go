// Package egress lets a kube-apiserver reach Services without a cluster network. An EgressSelectorConfiguration makes
// the kube-apiserver send CONNECT <ClusterIP>:<port> to a Unix socket for every call of a webhook. The proxy on that
// socket looks up the Service, picks a ready Pod behind it, and connects to the Pod's local process.
package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/tunnel"
)

const (
	// maxSocketPath is what a Unix socket's path may measure on every system, in
	// bytes (104 on macOS, with the final zero).
	maxSocketPath = 103
	// requestTime is how long a client may take to send its request, and a Pod's process to accept the connection.
	requestTime = 10 * time.Second
	// maxRefusals is how many targets the proxy remembers the refusals of.
	maxRefusals = 100
	// repeatAfter is the time after which the same refusal is logged again.
	repeatAfter = 30 * time.Second
)

// Resolver finds the backend of a Service's address. Its error explains why there is none.
type Resolver interface {
	Resolve(ctx context.Context, host string, port int32) (Backend, error)
}

// Backend is the backend of a Service.
type Backend struct {
	Addresses []string        // local ones, the one to try first at the front
	Cut       <-chan struct{} // closed when connections to it are to break; nil: never
}

// Proxy is an HTTP CONNECT proxy on a Unix socket.
type Proxy struct {
	resolver Resolver
	log      *slog.Logger

	mu       sync.Mutex
	tunnels  int64
	open     int
	refusals map[string]Refusal
}

// Refusal is a refused target and the reason.
type Refusal struct {
	Target string    `json:"target"` // host:port as the kube-apiserver requested it
	Reason string    `json:"reason"` // of the last time
	Count  int64     `json:"count"`
	Last   time.Time `json:"last"`
}

// Stats counts the connections of a proxy.
type Stats struct {
	Tunnels  int64     `json:"tunnels"` // ever opened
	Open     int       `json:"open"`
	Refusals []Refusal `json:"refusals"` // of the latest targets, sorted by target
}

// New returns a proxy over a resolver. A nil log is none.
func New(resolver Resolver, log *slog.Logger) *Proxy {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Proxy{resolver: resolver, log: log, refusals: map[string]Refusal{}}
}

// Listen opens the socket, which only this user may use, in place of one that a process before left.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("egress socket %s: the path has %d bytes, a Unix socket's may have %d: use a shorter folder",
			path, len(path), maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("egress socket: create its folder: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("egress socket: remove the one of a process before: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("egress socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("egress socket: keep it from others: %w", err)
	}
	return l, nil
}

// Serve accepts connections until ctx is done, closes the listener and every tunnel then, and returns nil.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) error {
	var tunnels sync.WaitGroup
	defer tunnels.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // tunnels end with the listener, whatever ended it
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	for {
		client, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept a connection on %s: %w", l.Addr(), err)
		}
		tunnels.Go(func() { p.handle(ctx, client) })
	}
}

// handle serves one connection: a request, then bytes both ways.
func (p *Proxy) handle(ctx context.Context, client net.Conn) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()

	_ = client.SetDeadline(time.Now().Add(requestTime))
	reader := bufio.NewReader(client)
	request, err := http.ReadRequest(reader)
	if err != nil {
		return // the client has closed the connection
	}
	target := request.Host
	if request.Method != http.MethodConnect {
		p.refuse(client, target, http.StatusMethodNotAllowed, fmt.Errorf("method %s: this proxy supports CONNECT only",
			request.Method))
		return
	}
	backend, cut, err := p.dial(ctx, target)
	if err != nil {
		p.refuse(client, target, http.StatusBadGateway, err)
		return
	}
	defer backend.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	_ = client.SetDeadline(time.Time{})
	p.count(1)
	defer p.count(-1)
	joined := make(chan struct{})
	go func() {
		select {
		case <-cut:
			backend.Close()
			client.Close()
		case <-joined:
		}
	}()
	tunnel.Join(ctx, client, reader, backend)
	close(joined)
}

// dial connects to the first of the target's local addresses that accepts; cut is
// closed when the connection is to break.
func (p *Proxy) dial(ctx context.Context, target string) (conn net.Conn, cut <-chan struct{}, err error) {
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return nil, nil, fmt.Errorf("target %q: %w", target, err)
	}
	port, err := net.LookupPort("tcp", portText)
	if err != nil {
		return nil, nil, fmt.Errorf("target %q: %w", target, err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	backend, err := p.resolver.Resolve(ctx, host, int32(port))
	if err != nil {
		return nil, nil, err
	}
	var errs []error
	for _, addr := range backend.Addresses {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn, backend.Cut, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, fmt.Errorf("no process behind %s accepts: %w", target, errors.Join(errs...))
}

// refuse answers with the reason, also in the status line: that is the part that an apiserver shows to its clients.
func (p *Proxy) refuse(client net.Conn, target string, code int, reason error) {
	text := strings.Join(strings.Fields(reason.Error()), " ")
	p.record(target, text)
	body := text + "\n"
	_, _ = fmt.Fprintf(client,
		"HTTP/1.1 %d %s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		code, http.StatusText(code), text, len(body), body) // fails only if the client has closed the connection
}

// record counts a refusal, and logs it unless it is a repetition.
func (p *Proxy) record(target, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.refusals[target]
	if !known || r.Reason != reason || time.Since(r.Last) > repeatAfter {
		p.log.Warn("the apiserver's call was refused", "target", target, "reason", reason, "before", r.Count)
	}
	if !known && len(p.refusals) >= maxRefusals {
		oldest := ""
		for t, other := range p.refusals {
			if oldest == "" || other.Last.Before(p.refusals[oldest].Last) {
				oldest = t
			}
		}
		delete(p.refusals, oldest)
	}
	p.refusals[target] = Refusal{Target: target, Reason: reason, Count: r.Count + 1, Last: time.Now()}
}

func (p *Proxy) count(change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += change
	if change > 0 {
		p.tunnels++
	}
}

// Stats returns the current counts.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Tunnels: p.tunnels, Open: p.open, Refusals: []Refusal{}}
	for _, r := range p.refusals {
		s.Refusals = append(s.Refusals, r)
	}
	slices.SortFunc(s.Refusals, func(a, b Refusal) int { return strings.Compare(a.Target, b.Target) })
	return s
}
