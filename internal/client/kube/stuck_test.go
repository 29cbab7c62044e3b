package kube_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// aged is a server whose clock a test sets: not the machine's, and years from it.
func aged(t *testing.T) (api *kubetest.Server, c *kube.Cluster, pass func(time.Duration)) {
	t.Helper()
	api, c = connect(t)
	var passed atomic.Int64
	began := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	api.Now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	return api, c, func(d time.Duration) { passed.Add(int64(d)) }
}

// note is what a record says of a recovery.
func note(api *kubetest.Server, revision int) string {
	if s := api.Get("v1", "Secret", "system", recordName(revision)); s != nil {
		return s.GetAnnotations()[kube.RecoveredAnnotation]
	}
	return "there is no such record"
}

// mark gives a revision another status.
func mark(t *testing.T, api *kubetest.Server, revision int, status release.Status) {
	t.Helper()
	s := records(t, api)
	r, err := s.Get("demo", revision)
	if err != nil {
		t.Fatal(err)
	}
	r.Info.Status = status
	if err := s.Update(r); err != nil {
		t.Fatal(err)
	}
}

// unfinished are the ends of an operation that was killed.
var unfinished = []struct {
	status   release.Status
	upgraded bool // the release had a good revision before
	says     string
	revision int // of the release that is there in the end
}{
	{release.StatusPendingInstall, false, "removing it", 1},
	{release.StatusPendingUpgrade, true, "rolling it back to revision 1", 4},
	{release.StatusPendingRollback, true, "rolling it back to revision 1", 4},
	{release.StatusUninstalling, false, "removing it", 1},
}

// What an ended run of the same state folder left is recovered at once, and the record says when and why.
func TestHelmRecoversFromADeadRun(t *testing.T) {
	for _, tt := range unfinished {
		t.Run(string(tt.status), func(t *testing.T) {
			api, c, _ := aged(t)
			var s said
			ensure(t, c, &s, "1.0.0", "red")
			if tt.upgraded {
				ensure(t, c, &s, "1.0.0", "blue")
				mark(t, api, 1, release.StatusDeployed) // which it is until the upgrade has ended
			}
			leave(t, api, tt.status, us)
			if revision, err := c.DeployedRevision(t.Context(), "system", "demo"); err != nil || revision != 0 {
				t.Errorf("a pending release counts as deployed: %d, %v", revision, err)
			}
			s = nil
			r := ensure(t, c, &s, "1.0.0", "green")
			if color(api) != "green" || r.Revision != tt.revision {
				t.Errorf("the ConfigMap shows %v at revision %d", color(api), r.Revision)
			}
			for _, want := range []string{tt.says, string(tt.status), "by an interrupted run"} {
				if !strings.Contains(s.all(), want) {
					t.Errorf("it did not say %q:\n%s", want, s.all())
				}
			}
			if n := note(api, r.Revision); !strings.HasPrefix(n, "2031-05-01T12:00:00Z: release demo was left "+
				string(tt.status)) || !strings.Contains(n, tt.says) {
				t.Errorf("the record says %q", n)
			}
			for revision := 1; tt.upgraded && revision <= 2; revision++ {
				if n := note(api, revision); n != "" {
					t.Errorf("revision %d was never recovered and says %q", revision, n)
				}
			}
			if revision, err := c.DeployedRevision(t.Context(), "system", "demo"); err != nil || revision != r.Revision {
				t.Errorf("deployed afterwards: %d, %v", revision, err)
			}
			// The next upgrade is none, and what was noted stays with its revision.
			next := ensure(t, c, &s, "1.0.0", "black")
			if n := note(api, next.Revision); n != "" || note(api, r.Revision) == "" {
				t.Errorf("revision %d says %q, and %d %q", next.Revision, n, r.Revision, note(api, r.Revision))
			}
		})
	}
}

// Another process's operation is left alone until its record is unchanged for longer than Helm works; then that process
// has ended.
func TestHelmLeavesALivingOwnerAlone(t *testing.T) {
	for _, owner := range []string{"", "another state folder"} {
		for _, tt := range unfinished {
			t.Run(string(tt.status)+" "+owner, func(t *testing.T) {
				api, c, pass := aged(t)
				var s said
				ensure(t, c, &s, "1.0.0", "red")
				if tt.upgraded {
					ensure(t, c, &s, "1.0.0", "blue")
				}
				pass(time.Hour) // the release is old, what happens to it is not
				leave(t, api, tt.status, owner)
				refused := func() *kube.BusyError {
					t.Helper()
					before := len(api.Writes())
					_, err := helm(t, c).Ensure(t.Context(), s.say, wanted(t, c, "1.0.0", "green"))
					var busy *kube.BusyError
					if !errors.As(err, &busy) {
						t.Fatalf("it did not wait: %v", err)
					}
					if n := len(api.Writes()) - before; n > 0 {
						t.Fatalf("it changed %d things", n)
					}
					return busy
				}
				busy := refused()
				for _, want := range []string{string(tt.status), "waited for", "count as dead from"} {
					if !strings.Contains(busy.Error(), want) {
						t.Errorf("it does not say %q: %v", want, busy)
					}
				}
				if alive := busy.Until.Sub(busy.Since); alive != 6*time.Minute {
					t.Errorf("they count as dead after %s", alive)
				}
				pass(5 * time.Minute)
				refused()
				leave(t, api, tt.status, owner) // a sign of life
				pass(5 * time.Minute)
				refused()
				pass(time.Minute)
				s = nil
				r := ensure(t, c, &s, "1.0.0", "green")
				if color(api) != "green" || r.Revision != tt.revision || !strings.Contains(s.all(), "by helm or a run with "+
					"another state folder, without a "+
					"change for 6m0s") {
					t.Errorf("%v at revision %d:\n%s", color(api), r.Revision, s.all())
				}
				if n := note(api, r.Revision); !strings.Contains(n, "helm or a run with another state folder") {
					t.Errorf("the record says %q", n)
				}
			})
		}
	}
}

// Another process's operation that succeeds is taken as it is.
func TestHelmGoesOnAfterALivingOwner(t *testing.T) {
	api, c, _ := aged(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	leave(t, api, release.StatusPendingUpgrade, "")
	w := wanted(t, c, "1.0.0", "red")
	if _, err := helm(t, c).Ensure(t.Context(), s.say, w); err == nil {
		t.Fatal("it did not wait")
	}
	leave(t, api, release.StatusDeployed, "")
	if r, err := helm(t, c).Ensure(t.Context(), s.say, w); err != nil || r.Changed || *w.Recovered != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// A release is recovered once in a run.
func TestHelmRecoversOnce(t *testing.T) {
	api, c, _ := aged(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	w := wanted(t, c, "1.0.0", "green")
	leave(t, api, release.StatusPendingInstall, us)
	if _, err := helm(t, c).Ensure(t.Context(), s.say, w); err != nil {
		t.Fatal(err)
	}
	leave(t, api, release.StatusPendingInstall, us)
	before := len(api.Writes())
	_, err := helm(t, c).Ensure(t.Context(), s.say, w)
	if err == nil || !strings.Contains(err.Error(), "was done once in this run") ||
		!strings.Contains(err.Error(), "helm history demo -n system") {
		t.Errorf("error is %v", err)
	}
	if n := len(api.Writes()) - before; n > 0 {
		t.Errorf("it changed %d things", n)
	}
	ensure(t, c, &s, "1.0.0", "green") // in the next run
}

// A run that is killed between the removal of a release and its installation takes nothing of the reason with it.
func TestHelmKeepsTheReasonOverAKill(t *testing.T) {
	api, c, _ := aged(t)
	var killed atomic.Bool
	api.Fail = func(r *http.Request) (int, string) {
		if killed.Load() && r.Method == http.MethodDelete && strings.Contains(r.URL.Path, "/secrets/") {
			return http.StatusForbidden, "nobody is there to ask any more"
		}
		return 0, ""
	}
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	leave(t, api, release.StatusPendingInstall, us)
	killed.Store(true)
	if _, err := helm(t, c).Ensure(t.Context(), s.say, wanted(t, c, "1.0.0", "green")); err == nil || color(api) != nil {
		t.Fatalf("it went on: %v, %v", color(api), err)
	}
	killed.Store(false)
	s = nil
	w := wanted(t, c, "1.0.0", "green")
	r, err := helm(t, c).Ensure(t.Context(), s.say, w)
	if err != nil || r.Revision != 1 || color(api) != "green" {
		t.Fatalf("%+v, %v, %v", r, color(api), err)
	}
	if strings.Contains(s.all(), "removing it") || !strings.Contains(s.all(), "installing it again") {
		t.Errorf("it recovered again:\n%s", s.all())
	}
	for _, reason := range []string{note(api, 1), *w.Recovered} {
		if !strings.Contains(reason, "was left pending-install at revision 1 by an interrupted run") {
			t.Errorf("the reason is %q", reason)
		}
	}
}

// A release that was removed with helm uninstall --keep-history is installed again, and no other process is blamed.
func TestHelmInstallsWhatSomebodyRemoved(t *testing.T) {
	api, c, _ := aged(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	leave(t, api, release.StatusUninstalled, "")
	s = nil
	if r := ensure(t, c, &s, "1.0.0", "green"); r.Revision != 1 || color(api) != "green" {
		t.Errorf("%+v, %v", r, color(api))
	}
	if !strings.Contains(s.all(), "was left uninstalled at revision 1 by helm or a run with another state folder;") {
		t.Errorf("it said:\n%s", s.all())
	}
}

// A release that has long been deployed and is not ready is applied again, once in a run; one that was deployed just
// now, or is ready, is not.
func TestHelmAppliesAgainWhatNeverBecameReady(t *testing.T) {
	api, c, pass := aged(t)
	var s said
	ensure(t, c, &s, "1.0.0", "red")
	unready := map[string]any{"generation": 1}
	api.Change("apps/v1", "DaemonSet", "system", "demo", map[string]any{"metadata": unready, "status": map[string]any{
		"observedGeneration": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 2}})
	pass(5 * time.Minute)
	if r := ensure(t, c, &s, "1.0.0", "red"); r.Changed {
		t.Error("it was not given time")
	}
	pass(time.Minute)
	api.Change("v1", "ConfigMap", "system", "demo", map[string]any{"data": map[string]any{"color": "edited"}})
	w := wanted(t, c, "1.0.0", "red")
	s = nil
	r, err := helm(t, c).Ensure(t.Context(), s.say, w)
	if err != nil || !r.Changed || r.Revision != 2 || color(api) != "red" {
		t.Fatalf("%+v, %v, %v", r, color(api), err)
	}
	for _, text := range []string{s.all(), note(api, 2)} {
		if !strings.Contains(text, "deployed at revision 1 for 6m0s and is not ready (DaemonSet demo is ready on 2 "+
			"of 3 nodes") {
			t.Errorf("it says %q", text)
		}
	}
	pass(time.Hour)
	if r, err := helm(t, c).Ensure(t.Context(), s.say, w); err != nil || r.Changed {
		t.Errorf("twice in a run: %+v, %v", r, err)
	}
	api.Change("apps/v1", "DaemonSet", "system", "demo", map[string]any{"status": map[string]any{"numberReady": 3}})
	if r := ensure(t, c, &s, "1.0.0", "red"); r.Changed {
		t.Errorf("ready, and applied again: %+v", r)
	}
}
