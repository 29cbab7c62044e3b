package serve

import (
	"context"
	"net/http"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// access is who may ask for a route.
type access int

const (
	operators  access = iota // who has a token or a session of an operator
	readers                  // who has a token or a session, whatever the role
	readersNow               // the same, and each request runs a command, so that they are bounded
	open                     // everybody: it tells nothing of a cluster
	probe                    // everybody, under any name: those who ask are machines that know an address alone
)

// route is a method and a path, and what answers.
type route struct {
	pattern string
	access  access
	answer  http.HandlerFunc
}

// prefix is that of the API's first version.
const prefix = "/api/v1"

// table has every route. openapi.json describes them; a test holds the two together.
func (s *server) table() []route {
	cluster := prefix + "/clusters/{cluster}"
	return []route{
		{"GET /healthz", probe, s.health},
		{"GET /readyz", probe, s.readiness},
		{"GET /{$}", open, asset("page/index.html", "text/html; charset=utf-8")},
		{"GET /app.js", open, asset("page/app.js", "text/javascript; charset=utf-8")},
		{"GET /view.js", open, asset("page/view.js", "text/javascript; charset=utf-8")},
		{"GET /style.css", open, asset("page/style.css", "text/css; charset=utf-8")},
		{"GET /icon.svg", open, asset("page/icon.svg", "image/svg+xml")},
		{"GET /openapi.json", open, asset("openapi.json", "application/json")},
		{"GET /metrics", readers, s.metrics.Handler().ServeHTTP},
		{"POST " + prefix + "/session", open, s.login},
		{"GET " + prefix + "/session", readers, s.session},
		{"DELETE " + prefix + "/session", readers, s.logout},
		{"GET " + prefix + "/clusters", readers, s.listClusters},
		{"GET " + cluster, readers, s.onCluster(s.showCluster)},
		{"GET " + cluster + "/plan", readersNow, s.onCluster(s.plan)},
		{"GET " + cluster + "/status", readersNow, s.examine("status")},
		{"GET " + cluster + "/doctor", readersNow, s.examine("doctor")},
		{"GET " + cluster + "/runs", readers, s.onCluster(s.listRuns)},
		{"POST " + cluster + "/runs", operators, s.onCluster(s.startRun)},
		{"GET " + cluster + "/runs/{run}", readers, s.onRun(s.showRun)},
		{"GET " + cluster + "/runs/{run}/events", readers, s.onRun(s.events)},
		{"GET " + cluster + "/runs/{run}/effects", readersNow, s.onRun(s.effects)},
		{"GET " + cluster + "/runs/{run}/report", readersNow, s.onRun(s.report)},
		{"POST " + cluster + "/runs/{run}/cancel", operators, s.onRun(s.cancelRun)},
		{"POST " + cluster + "/runs/{run}/resume", operators, s.onRun(s.resumeRun)},
	}
}

// mux answers the routes of a table.
func (s *server) mux(table []route) http.Handler {
	mux := http.NewServeMux()
	for _, r := range table {
		mux.Handle(r.pattern, s.guard(r.access, r.answer))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Hosts.Check(r); err != nil {
			s.fail(w, r, refuse(http.StatusMisdirectedRequest, "%v", err))
			return
		}
		s.fail(w, r, refuse(http.StatusNotFound,
			"there is no %s %s: openapi.json describes what there is", r.Method, r.URL.Path))
	})
	return s.bound(mux)
}

// identityKey is the key of who sent a request, in its context.
type identityKey struct{}

// caller is who sent a request.
func caller(ctx context.Context) auth.Identity {
	who, _ := ctx.Value(identityKey{}).(auth.Identity)
	return who
}
