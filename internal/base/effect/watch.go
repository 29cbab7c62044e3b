package effect

import (
	"context"
	"net/http"
	"strings"
)

// Seen is a call as a watcher sees it. It has nothing of a body, a header or a query.
type Seen struct {
	System       System
	Verb, Object string // as a Line has them, with the names as they are
	Method       string // of HTTP; empty: it is not HTTP
	RPC          bool   // it is gRPC: Verb is its method, Object its service
	Scheme, Host string // the host with its port, where that is known
	Path         string
	Step         string
}

// watch tells the watcher, if there is one, of a call.
func (r *Recorder) watch(ctx context.Context, s Seen) (ended func(status int, err error)) {
	if r == nil || r.options.Watch == nil {
		return func(int, error) {}
	}
	if r.options.Step != nil {
		s.Step = r.options.Step(ctx)
	}
	return r.options.Watch(ctx, s)
}

// watchRequest is watch for a request. What naming leaves out is called by its method.
func (t *transport) watchRequest(request *http.Request) (ended func(status int, err error)) {
	if t.recorder.options.Watch == nil {
		return func(int, error) {}
	}
	s := Seen{System: t.system, Method: request.Method, Scheme: request.URL.Scheme, Host: request.URL.Host,
		Path: request.URL.Path}
	var ok bool
	if s.Verb, s.Object, ok = t.naming(request); !ok {
		s.Verb, s.Object = strings.ToLower(request.Method), ""
	}
	if request.Method == "" {
		s.Method, s.Verb = http.MethodGet, "get"
	}
	return t.recorder.watch(request.Context(), s)
}
