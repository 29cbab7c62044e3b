// Package serve is an HTTP API, and one page, to watch and start runs of clusters.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/serve/metrics"
	"github.com/slipway-k8s/slipway/internal/serve/work"
)

// Bounds of what a client can ask for.
const (
	bodyMost        = 1 << 20
	headerMost      = 16 << 10
	connectionsMost = 256
	streamsMost     = 64 // of events, at once
	headerWithin    = 5 * time.Second
	readWithin      = 15 * time.Second // for the whole request
	writeWithin     = 30 * time.Second // for an answer, or for a part of a stream
	idleWithin      = time.Minute
	closeWithin     = 5 * time.Second
)

// Options are what a Server works with.
type Options struct {
	Clusters []*work.Cluster
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

// Server answers requests.
type Server struct {
	Options
	metrics *metrics.Metrics
	changes *auth.Limits // of requests that change something
	looks   *auth.Limits // of requests that run a command
	streams chan struct{}
	ending  context.Context // ends the streams
	end     context.CancelFunc
	handler http.Handler
	// slow bounds how slowly a client may send.
	slow struct{ header, request time.Duration }

	readyMu sync.Mutex
	readyAt time.Time
	ready   error
}

// New makes a server.
func New(o Options) *Server {
	if o.Learn == nil {
		o.Learn = func() {}
	}
	if o.StreamLasts == 0 {
		o.StreamLasts = time.Hour
	}
	s := &Server{Options: o, metrics: metrics.New(o.Clusters), changes: auth.NewLimits(1, 10),
		looks: auth.NewLimits(2, 20), streams: make(chan struct{}, streamsMost)}
	s.ending, s.end = context.WithCancel(context.Background())
	s.slow.header, s.slow.request = headerWithin, readWithin
	s.handler = s.routes()
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Serve answers on a listener until the context ends.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: s.slow.header, ReadTimeout: s.slow.request, IdleTimeout: idleWithin,
		MaxHeaderBytes: headerMost, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		TLSConfig: s.TLS,
	}
	follow, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { s.metrics.Follow(follow) })
	defer following.Wait()
	defer stop()
	failed := make(chan error, 1)
	listener = netutil.LimitListener(listener, connectionsMost)
	go func() {
		if s.TLS != nil {
			failed <- server.ServeTLS(listener, "", "")
			return
		}
		failed <- server.Serve(listener)
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	s.end()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := server.Shutdown(within); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return server.Close()
}
