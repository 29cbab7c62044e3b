package serve

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/serve/work"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// health says that the process lives, and nothing else.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// readyOften is how often it is tried whether serve can work.
const readyOften = 2 * time.Second

// readiness says whether serve can work: whether it can write down what it starts. Clusters are not asked.
func (s *Server) readiness(w http.ResponseWriter, _ *http.Request) {
	s.readyMu.Lock()
	if time.Since(s.readyAt) > readyOften {
		s.ready = nil
		for _, c := range s.Clusters {
			if err := c.Writable(); err != nil && s.ready == nil {
				s.Log.Error("not ready", "error", err)
				s.ready = err
			}
		}
		s.readyAt = time.Now()
	}
	err := s.ready
	s.readyMu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "records of runs cannot be written; the log of serve says why\n")
		return
	}
	_, _ = io.WriteString(w, "ok\n")
}

// Session is who is logged in.
type Session struct {
	User    string     `json:"user"`
	Role    auth.Role  `json:"role"`           // "operator" or "reader"
	CSRF    string     `json:"csrf,omitempty"` // of a browser's session, for what changes something; given at the login
	Until   *time.Time `json:"until,omitempty"`
	Version string     `json:"version"`
}

func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Token string `json:"token"`
	}
	if err := read(r, &asked); err != nil {
		s.fail(w, r, err)
		return
	}
	who, csrf, err := s.Auth.Login(w, r, asked.Token)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	s.Log.Info("logged in", "user", who.Name, "role", who.Role)
	s.answer(w, http.StatusOK, Session{User: who.Name, Role: who.Role, CSRF: csrf, Until: &who.Until, Version: s.Version})
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	who := caller(r.Context())
	s.answer(w, http.StatusOK, Session{User: who.Name, Role: who.Role, CSRF: s.Auth.CSRF(r), Version: s.Version})
}

func (s *Server) logout(w http.ResponseWriter, r *http.Request) {
	s.Auth.Logout(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// Cluster is a cluster that is served.
type Cluster struct {
	Name        string    `json:"name"`
	Environment string    `json:"world"` // "hetzner" or "lab"
	Dir         string    `json:"dir"`
	State       string    `json:"stateFolder"`
	Targets     []string  `json:"targets"` // that can be run
	Last        *work.Run `json:"lastRun,omitempty"`
	AtWork      bool      `json:"atWork"`
}

func clusterNow(c *work.Cluster) (Cluster, error) {
	all, err := c.Runs()
	v := Cluster{Name: c.Name, Environment: c.Environment, Dir: c.Dir, State: string(c.State), Targets: c.Targets}
	for i, r := range all {
		v.AtWork = v.AtWork || !r.State.Ended()
		if i == 0 {
			v.Last = &r
		}
	}
	return v, err
}

// list is a list in an answer.
type list[T any] struct {
	Items []T `json:"items"`
}

func (s *Server) listClusters(w http.ResponseWriter, r *http.Request) {
	all := list[Cluster]{Items: []Cluster{}}
	for _, c := range s.Clusters {
		v, err := clusterNow(c)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		all.Items = append(all.Items, v)
	}
	s.answer(w, http.StatusOK, all)
}

// onCluster finds the cluster that a path names.
func (s *Server) onCluster(do func(http.ResponseWriter, *http.Request, *work.Cluster)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("cluster")
		for _, c := range s.Clusters {
			if c.Name == name {
				do(w, r, c)
				return
			}
		}
		s.fail(w, r, &problem{http.StatusNotFound, "there is no cluster " + name + " here"})
	}
}

// onRun finds the run that a path names.
func (s *Server) onRun(do func(http.ResponseWriter, *http.Request, *work.Cluster, work.Run)) http.HandlerFunc {
	return s.onCluster(func(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
		run, err := c.Find(r.PathValue("run"))
		if err != nil {
			s.fail(w, r, err)
			return
		}
		do(w, r, c, run)
	})
}

func (s *Server) showCluster(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	v, err := clusterNow(c)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, v)
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	all, err := c.Runs()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, list[work.Run]{all})
}

func (s *Server) startRun(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	var asked struct {
		Targets []string `json:"targets"`
	}
	if err := read(r, &asked); err != nil {
		s.fail(w, r, err)
		return
	}
	s.started(w, r)(c.Start(asked.Targets, caller(r.Context()).Name))
}

// started answers with a run that was asked for.
func (s *Server) started(w http.ResponseWriter, r *http.Request) func(work.Run, error) {
	return func(run work.Run, err error) {
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.Header().Set("Location", prefix+"/clusters/"+run.Cluster+"/runs/"+run.ID)
		s.answer(w, http.StatusAccepted, run)
	}
}

func (s *Server) showRun(w http.ResponseWriter, _ *http.Request, _ *work.Cluster, run work.Run) {
	s.answer(w, http.StatusOK, run)
}

func (s *Server) cancelRun(w http.ResponseWriter, r *http.Request, c *work.Cluster, run work.Run) {
	asked := struct {
		Force bool `json:"force"`
	}{}
	if r.ContentLength != 0 {
		if err := read(r, &asked); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	run, err := c.Cancel(run.ID, caller(r.Context()).Name, asked.Force)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, http.StatusAccepted, run)
}

func (s *Server) resumeRun(w http.ResponseWriter, r *http.Request, c *work.Cluster, run work.Run) {
	s.started(w, r)(c.Resume(run.ID, caller(r.Context()).Name))
}

const (
	// examineWithin is how long what asks Hetzner and the cluster may take.
	examineWithin = 2 * time.Minute
	// readFilesWithin is how long what reads the state folder alone may take.
	readFilesWithin = 30 * time.Second
)

// ask answers with the document of a command that changes nothing.
func (s *Server) ask(w http.ResponseWriter, r *http.Request, c *work.Cluster, within time.Duration, words ...string) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within + writeWithin))
	document, err := c.Ask(r.Context(), within, words...)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.answer(w, http.StatusOK, document)
}

func (s *Server) plan(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	targets := r.URL.Query()["target"]
	if err := c.CheckTargets(targets); err != nil {
		s.fail(w, r, err)
		return
	}
	s.ask(w, r, c, examineWithin, append([]string{"plan"}, targets...)...)
}

func (s *Server) status(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	s.ask(w, r, c, examineWithin, "status")
}

func (s *Server) doctor(w http.ResponseWriter, r *http.Request, c *work.Cluster) {
	s.ask(w, r, c, examineWithin, "doctor")
}

// errNotBegun is about what a run only has once it has begun.
var errNotBegun = &problem{http.StatusConflict, "the run has not begun to work yet"}

func (s *Server) effects(w http.ResponseWriter, r *http.Request, c *work.Cluster, run work.Run) {
	if run.Run == "" {
		s.fail(w, r, errNotBegun)
		return
	}
	s.ask(w, r, c, readFilesWithin, "effects", run.Run)
}

// report answers with the page of a run and those that it resumed.
func (s *Server) report(w http.ResponseWriter, r *http.Request, c *work.Cluster, run work.Run) {
	if run.Run == "" {
		s.fail(w, r, errNotBegun)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readFilesWithin + writeWithin))
	if _, err := c.Ask(r.Context(), readFilesWithin, "report", run.Run); err != nil {
		s.fail(w, r, err)
		return
	}
	page, err := os.ReadFile(c.State.Path(filepath.Join(statedir.RunsFolder, run.Run, "report.html")))
	if err != nil {
		s.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	// It is shown inside the page, has its style in itself, and runs nothing.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Del("Cross-Origin-Opener-Policy") // a document in a sandbox may not have one
	_, _ = io.WriteString(w, s.Hide.Text(strings.ToValidUTF8(string(page), "?")))
}
