package serve

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/serve/auth"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// health says that the process lives, and nothing else.
func (s *server) health(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// readyOften is how often it is tried whether serve can work.
const readyOften = 2 * time.Second

// readiness says whether serve can work: whether it can write down what it starts. Clusters are not asked.
func (s *server) readiness(w http.ResponseWriter, _ *http.Request) {
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

func (s *server) login(w http.ResponseWriter, r *http.Request) {
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

func (s *server) session(w http.ResponseWriter, r *http.Request) {
	who := caller(r.Context())
	s.answer(w, http.StatusOK, Session{User: who.Name, Role: who.Role, CSRF: s.Auth.CSRF(r), Version: s.Version})
}

func (s *server) logout(w http.ResponseWriter, r *http.Request) {
	s.Auth.Logout(w, r)
	w.WriteHeader(http.StatusNoContent)
}

// Cluster is a cluster that is served.
type Cluster struct {
	Name        string   `json:"name"`
	Environment string   `json:"world"` // "hetzner" or "lab"
	Dir         string   `json:"dir"`
	State       string   `json:"stateFolder"`
	Targets     []string `json:"targets"` // that can be run
	Last        *Run     `json:"lastRun,omitempty"`
	AtWork      bool     `json:"atWork"`
}

func clusterNow(c *cluster) (Cluster, error) {
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

func (s *server) listClusters(w http.ResponseWriter, r *http.Request) {
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

// onCluster finds the cluster that a path names, and answers with what goes wrong.
func (s *server) onCluster(do func(http.ResponseWriter, *http.Request, *cluster) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("cluster")
		err := refuse(http.StatusNotFound, "there is no cluster %s here", name)
		for _, c := range s.Clusters {
			if c.Name == name {
				err = do(w, r, c)
			}
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}

// onRun finds the run that a path names.
func (s *server) onRun(do func(http.ResponseWriter, *http.Request, *cluster, Run) error) http.HandlerFunc {
	return s.onCluster(func(w http.ResponseWriter, r *http.Request, c *cluster) error {
		run, err := c.Find(r.PathValue("run"))
		if err != nil {
			return err
		}
		return do(w, r, c, run)
	})
}

func (s *server) showCluster(w http.ResponseWriter, _ *http.Request, c *cluster) error {
	v, err := clusterNow(c)
	return s.result(w, http.StatusOK, v, err)
}

func (s *server) listRuns(w http.ResponseWriter, _ *http.Request, c *cluster) error {
	all, err := c.Runs()
	return s.result(w, http.StatusOK, list[Run]{all}, err)
}

func (s *server) startRun(w http.ResponseWriter, r *http.Request, c *cluster) error {
	var asked struct {
		Targets []string `json:"targets"`
	}
	if err := read(r, &asked); err != nil {
		return err
	}
	run, err := c.Start(asked.Targets, caller(r.Context()).Name)
	return s.started(w, run, err)
}

// started answers with a run that was asked for.
func (s *server) started(w http.ResponseWriter, run Run, err error) error {
	if err == nil {
		w.Header().Set("Location", prefix+"/clusters/"+run.Cluster+"/runs/"+run.ID)
	}
	return s.result(w, http.StatusAccepted, run, err)
}

func (s *server) showRun(w http.ResponseWriter, _ *http.Request, _ *cluster, run Run) error {
	return s.result(w, http.StatusOK, run, nil)
}

func (s *server) cancelRun(w http.ResponseWriter, r *http.Request, c *cluster, run Run) error {
	asked := struct {
		Force bool `json:"force"`
	}{}
	if r.ContentLength != 0 {
		if err := read(r, &asked); err != nil {
			return err
		}
	}
	run, err := c.Cancel(run.ID, caller(r.Context()).Name, asked.Force)
	return s.result(w, http.StatusAccepted, run, err)
}

func (s *server) resumeRun(w http.ResponseWriter, r *http.Request, c *cluster, run Run) error {
	run, err := c.Resume(run.ID, caller(r.Context()).Name)
	return s.started(w, run, err)
}

const (
	// examineWithin is how long what asks Hetzner and the cluster may take.
	examineWithin = 2 * time.Minute
	// readFilesWithin is how long what reads the state folder alone may take.
	readFilesWithin = 30 * time.Second
)

// ask answers with the document of a command that changes nothing.
func (s *server) ask(w http.ResponseWriter, r *http.Request, c *cluster, within time.Duration, words ...string) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within + writeWithin))
	document, err := c.Ask(r.Context(), within, words...)
	return s.result(w, http.StatusOK, document, err)
}

func (s *server) plan(w http.ResponseWriter, r *http.Request, c *cluster) error {
	targets := r.URL.Query()["target"]
	if err := c.CheckTargets(targets); err != nil {
		return err
	}
	return s.ask(w, r, c, examineWithin, append([]string{"plan"}, targets...)...)
}

// examine answers with what a command finds out about a cluster.
func (s *server) examine(command string) http.HandlerFunc {
	return s.onCluster(func(w http.ResponseWriter, r *http.Request, c *cluster) error {
		return s.ask(w, r, c, examineWithin, command)
	})
}

// errNotBegun is about what a run only has once it has begun.
var errNotBegun = refuse(http.StatusConflict, "the run has not begun to work yet")

func (s *server) effects(w http.ResponseWriter, r *http.Request, c *cluster, run Run) error {
	if run.Run == "" {
		return errNotBegun
	}
	return s.ask(w, r, c, readFilesWithin, "effects", run.Run)
}

// report answers with the page of a run and those that it resumed.
func (s *server) report(w http.ResponseWriter, r *http.Request, c *cluster, run Run) error {
	if run.Run == "" {
		return errNotBegun
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(readFilesWithin + writeWithin))
	if _, err := c.Ask(r.Context(), readFilesWithin, "report", run.Run); err != nil {
		return err
	}
	page, err := os.ReadFile(c.State.Path(filepath.Join(statedir.RunsFolder, run.Run, "report.html")))
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	// It is shown inside the page, has its style in itself, and runs nothing.
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Del("Cross-Origin-Opener-Policy") // a document in a sandbox may not have one
	_, _ = io.WriteString(w, s.Hide.Text(strings.ToValidUTF8(string(page), "?")))
	return nil
}
