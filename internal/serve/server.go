// Package serve is an HTTP API, and one page, to watch and start runs of clusters, with metrics of them for Prometheus.
// Runs are processes of the same command: it follows them, and finds them again after a restart, by a record of each on
// disk.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// Bounds of what a client can ask for.
const (
	bodyMost        = 1 << 20
	headerMost      = 16 << 10
	connectionsMost = 256
	connectionsEach = 128 // of one address
	requestsEach    = 32  // of one HTTP/2 connection, at once
	streamsMost     = 64  // of events, at once, for each role
	probesMost      = 64  // connections for probes
	probesEach      = 16
	headerWithin    = 5 * time.Second
	readWithin      = 15 * time.Second // for the whole request
	writeWithin     = 30 * time.Second // for an answer, or for a part of a stream
	idleWithin      = time.Minute
	closeWithin     = 5 * time.Second
)

// serverOptions are what a server works with.
type serverOptions struct {
	Clusters []*cluster
	Auth     *auth.Auth
	Hosts    auth.Hosts // the names under which it is reached
	TLS      *tls.Config
	Version  string
	Hide     *redact.Redactor
	// Learn has secrets hidden that were written since the last answer; nil: there are none.
	Learn func()
	Log   *slog.Logger
	// StreamLasts is how long a stream of events lasts at most, until the client has to ask again.
	StreamLasts time.Duration
}

// server answers requests.
type server struct {
	serverOptions
	metrics *metrics
	changes *auth.Limits // of requests that change something
	looks   *auth.Limits // of requests that run a command
	streams map[auth.Role]chan struct{}
	refused *auth.Limits    // of lines in the log about refused requests
	ending  context.Context // ends the streams
	end     context.CancelFunc
	handler http.Handler
	// slow bounds how slowly a client may send.
	slow struct{ header, request time.Duration }

	readyMu sync.Mutex
	readyAt time.Time
	ready   error
}

// newServer makes a server.
func newServer(o serverOptions) *server {
	if o.Learn == nil {
		o.Learn = func() {}
	}
	if o.StreamLasts == 0 {
		o.StreamLasts = time.Hour
	}
	s := &server{serverOptions: o, metrics: newMetrics(o.Clusters), changes: auth.NewLimits(1, 10),
		looks: auth.NewLimits(2, 20), refused: auth.NewLimits(0.5, 10),
		streams: map[auth.Role]chan struct{}{
			auth.Operator: make(chan struct{}, streamsMost), auth.Reader: make(chan struct{}, streamsMost)}}
	s.ending, s.end = context.WithCancel(context.Background())
	s.slow.header, s.slow.request = headerWithin, readWithin
	s.handler = s.mux(s.table())
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers on a listener until the context ends, and probes on one of their own besides; nil: there is none.
func (s *server) Serve(ctx context.Context, listener, probes net.Listener) error {
	follow, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { s.metrics.Follow(follow) })
	defer following.Wait()
	defer stop()
	failed := make(chan error, 2)
	requests := newConnections(listener, connectionsMost, connectionsEach, s.Log)
	main := s.requestServer(requests)
	servers := []*http.Server{main}
	go func() {
		if s.TLS != nil {
			failed <- main.ServeTLS(requests, "", "")
			return
		}
		failed <- main.Serve(requests)
	}()
	if probes != nil {
		few := newConnections(probes, probesMost, probesEach, s.Log)
		other := s.probeServer(few)
		servers = append(servers, other)
		go func() { failed <- other.Serve(few) }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.end()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	for _, server := range servers {
		if shut := server.Shutdown(within); shut != nil && !errors.Is(shut, context.DeadlineExceeded) {
			err = errors.Join(err, shut)
		}
		err = errors.Join(err, server.Close())
	}
	return err
}

func (s *server) requestServer(requests *connections) *http.Server {
	return &http.Server{Handler: s, ReadHeaderTimeout: s.slow.header, ReadTimeout: s.slow.request, IdleTimeout: idleWithin,
		MaxHeaderBytes: headerMost, ErrorLog: s.errorLog(), TLSConfig: s.TLS,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: requestsEach},
		ConnState: requests.notice, ConnContext: requests.with}
}

// probeServer answers /healthz and /readyz and nothing else, one request for each connection.
func (s *server) probeServer(probes *connections) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	mux.HandleFunc("GET /readyz", s.readiness)
	server := &http.Server{Handler: mux, ReadTimeout: s.slow.header, WriteTimeout: s.slow.header,
		MaxHeaderBytes: headerMost, ErrorLog: s.errorLog(), ConnState: probes.notice}
	server.SetKeepAlivesEnabled(false)
	return server
}

func (s *server) errorLog() *log.Logger { return slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug) }
