package serve

import (
	"context"
	"net/http"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
)

// access is who may ask for a route.
type access int

const (
	open     access = iota // everybody: it tells nothing of a cluster
	probe                  // everybody, under any name: those who ask are machines that know an address alone
	users                  // who has a token or a session
	usersNow               // the same, and each request runs a command, so that they are bounded
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
func (s *Server) table() []route {
	cluster := prefix + "/clusters/{cluster}"
	return []route{
		{"GET /healthz", probe, s.health},
		{"GET /readyz", probe, s.readiness},
		{"GET /{$}", open, asset("index.html", "text/html; charset=utf-8")},
		{"GET /app.js", open, asset("app.js", "text/javascript; charset=utf-8")},
		{"GET /view.js", open, asset("view.js", "text/javascript; charset=utf-8")},
		{"GET /style.css", open, asset("style.css", "text/css; charset=utf-8")},
		{"GET /icon.svg", open, asset("icon.svg", "image/svg+xml")},
		{"GET /openapi.json", open, asset("openapi.json", "application/json")},
		{"GET /metrics", users, s.metrics.Handler().ServeHTTP},
		{"POST " + prefix + "/session", open, s.login},
		{"GET " + prefix + "/session", users, s.session},
		{"DELETE " + prefix + "/session", users, s.logout},
		{"GET " + prefix + "/clusters", users, s.listClusters},
		{"GET " + cluster, users, s.onCluster(s.showCluster)},
		{"GET " + cluster + "/plan", usersNow, s.onCluster(s.plan)},
		{"GET " + cluster + "/status", usersNow, s.onCluster(s.status)},
		{"GET " + cluster + "/doctor", usersNow, s.onCluster(s.doctor)},
		{"GET " + cluster + "/runs", users, s.onCluster(s.listRuns)},
		{"POST " + cluster + "/runs", users, s.onCluster(s.startRun)},
		{"GET " + cluster + "/runs/{run}", users, s.onRun(s.showRun)},
		{"GET " + cluster + "/runs/{run}/events", users, s.onRun(s.events)},
		{"GET " + cluster + "/runs/{run}/effects", usersNow, s.onRun(s.effects)},
		{"GET " + cluster + "/runs/{run}/report", usersNow, s.onRun(s.report)},
		{"POST " + cluster + "/runs/{run}/cancel", users, s.onRun(s.cancelRun)},
		{"POST " + cluster + "/runs/{run}/resume", users, s.onRun(s.resumeRun)},
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.table() {
		mux.Handle(r.pattern, s.guard(r.access, r.answer))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Hosts.Check(r); err != nil {
			s.fail(w, r, &problem{http.StatusMisdirectedRequest, err.Error()})
			return
		}
		s.fail(w, r, &problem{http.StatusNotFound,
			"there is no " + r.Method + " " + r.URL.Path + ": openapi.json describes what there is"})
	})
	return s.bound(mux)
}

// identityKey is the key of who sent a request, in its context.
type identityKey struct{}

// caller is who sent a request.
func caller(ctx context.Context) string {
	who, _ := ctx.Value(identityKey{}).(auth.Identity)
	return who.Name
}
