package releases

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestPending(t *testing.T) {
	for _, is := range []string{"pending-install", "pending-upgrade", "pending-rollback"} {
		t.Run(is, func(t *testing.T) {
			w := newWorld(t)
			w.pendingRelease("shop", is)
			version := "2"
			if is == "pending-install" {
				version = "1"
			}
			r := w.done(options())
			if len(r.Stuck) != 1 || r.Stuck[0].Outcome != Recovered || r.Stuck[0].Kind != Pending {
				t.Fatalf("%+v", r)
			}
			wants(t, r.Stuck[0].Why, is, "revision "+version, "1h00m")
			a := w.audit("shop")
			if w.suspended("shop") || w.has("shop", version) || version == "2" && !w.has("shop", "1") {
				t.Errorf("it is %v, with the record: %v", w.get("shop").Object, w.has("shop", version))
			}
			if a == nil || a.State != Done || a.By != "slipway v9.9.9" || a.Generation != w.get("shop").GetGeneration() ||
				!a.At.Equal(began.Add(time.Hour)) {
				t.Errorf("the annotation is %+v, of generation %d", a, w.get("shop").GetGeneration())
			}
			wants(t, a.What, recordOf("shop", version), is)
			// What is stuck again in the same generation is left.
			w.record("shop", version, is)
			writes := len(w.Writes())
			if r := w.done(options()); len(r.Stuck) != 0 || len(r.Left) != 1 || len(w.Writes()) != writes {
				t.Errorf("it is recovered twice: %+v", r)
			} else {
				wants(t, r.Left[0].Why, "not recovered twice", "slipway v9.9.9")
			}
			// In another generation it is recovered again.
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"metadata": map[string]any{"generation": 7}})
			if r := w.done(options()); len(r.Stuck) != 1 || r.Stuck[0].Outcome != Recovered || w.audit("shop").Generation != 9 {
				t.Errorf("%+v, %+v", r, w.audit("shop"))
			}
		})
	}
}

func TestLostReport(t *testing.T) {
	w := newWorld(t)
	w.lost("shop")
	r := w.done(options())
	if len(r.Stuck) != 1 || r.Stuck[0].Outcome != Recovered || r.Stuck[0].Kind != Status {
		t.Fatalf("%+v", r)
	}
	ready := w.ready("shop")
	if ready["status"] != "True" || ready["reason"] != reasonRecovered || fmt.Sprint(ready["observedGeneration"]) != "1" ||
		ready["lastTransitionTime"] != began.Add(time.Hour).Format(time.RFC3339) {
		t.Errorf("Ready is %v", ready)
	}
	wants(t, fmt.Sprint(ready["message"]), "apps/shop.v2", "shop@1.2.3", "slipway v9.9.9", "Unknown", "2031-05-01T12:00:00Z")
	conditions, _, _ := unstructured.NestedSlice(w.get("shop").Object, "status", "conditions")
	if a := w.audit("shop"); len(conditions) != 2 || a == nil || a.State != Done || a.Generation != 1 || a.Kind != Status {
		t.Errorf("the annotation is %+v, conditions are %v", a, conditions)
	}
	writes := len(w.Writes())
	if r := w.done(options()); r.Healthy != 1 || len(r.Stuck)+len(r.Left) != 0 || len(w.Writes()) != writes {
		t.Errorf("afterwards it is %+v", r)
	}
	// The report is lost again: once in a generation.
	w.Change(apiVersion, kind.Kind, "apps", "shop", named("shop", status(condition("Ready", "Unknown", "Progressing"))))
	writes = len(w.Writes())
	if r := w.done(options()); len(r.Left) != 1 || len(w.Writes()) != writes {
		t.Errorf("it is recovered twice: %+v", r)
	}
}

// TestLeftAlone has what must not be touched, each with the reason that is given.
func TestLeftAlone(t *testing.T) {
	unknown := func() map[string]any { return condition("Ready", "Unknown", "Progressing") }
	recent := func(c map[string]any) map[string]any {
		c["lastTransitionTime"] = began.Add(56 * time.Minute).Format(time.RFC3339)
		return c
	}
	history := func(key string, value any) func(*environment) {
		return func(w *environment) {
			s := status(unknown())
			n := named("shop", s)
			s["history"].([]any)[0].(map[string]any)[key] = value
			w.lost("shop")
			w.release("shop", n)
		}
	}
	for name, tt := range map[string]struct {
		put  func(*environment)
		says string // empty: it is healthy
	}{
		"healthy": {func(w *environment) { w.healthy("shop") }, ""},
		"healthy with a pending record": {func(w *environment) {
			w.healthy("shop")
			w.record("shop", "3", "pending-upgrade")
		}, ""},
		"suspended, pending": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"spec": map[string]any{"suspend": true}})
		}, "suspended"},
		"suspended, lost": {func(w *environment) {
			w.lost("shop")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"spec": map[string]any{"suspend": true}})
		}, "suspended"},
		"not observed": {func(w *environment) {
			w.lost("shop")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"metadata": map[string]any{"generation": 2}})
		}, "observed generation 1, and the object is at generation 2"},
		"pending for a minute": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.pass(59 * time.Minute)
			w.record("shop", "2", "pending-upgrade")
			w.pass(-59 * time.Minute)
		}, "may be at work"},
		"pending within its own time-out": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"spec": map[string]any{
				"upgrade": map[string]any{"timeout": "2h"}}})
		}, "until that is 2h00m"},
		"pending, changed a minute ago": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.pass(59 * time.Minute)
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"spec": map[string]any{"interval": "2h"}})
			w.pass(-59 * time.Minute)
		}, "was changed 1m00s ago"},
		"Unknown for four minutes": {func(w *environment) {
			w.lost("shop")
			w.release("shop", named("shop", status(recent(unknown()))))
		}, "its controller has set Ready"},
		"reconciling for four minutes": {func(w *environment) {
			w.lost("shop")
			w.release("shop", named("shop", status(unknown(), recent(condition("Reconciling", "True", "Progressing")))))
		}, "its controller has set Reconciling"},
		"Ready False": {func(w *environment) {
			w.lost("shop")
			w.release("shop", named("shop", status(condition("Ready", "False", "UpgradeFailed"))))
		}, "UpgradeFailed"},
		"a strategy that cannot be merged": {func(w *environment) {
			c := condition("Ready", "False", "UpgradeFailed")
			c["message"] = "Helm upgrade failed for release apps/shop: Deployment.apps \"shop\" is invalid: " +
				"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"
			w.lost("shop")
			w.release("shop", named("shop", status(c)))
		}, "the update strategy of Deployment shop was changed from RollingUpdate to Recreate"},
		"stalled": {func(w *environment) {
			w.lost("shop")
			w.release("shop", named("shop", status(unknown(), condition("Stalled", "True", "RetriesExceeded"))))
		}, "RetriesExceeded"},
		"release failed": {func(w *environment) {
			w.lost("shop")
			w.record("shop", "3", "failed")
		}, "is failed"},
		"a newer revision":        {func(w *environment) { w.lost("shop"); w.record("shop", "3", "deployed") }, "revision 3"},
		"another status":          {history("status", "failed"), "as failed"},
		"another name":            {history("name", "other"), "apps/other"},
		"tests without a result":  {func(w *environment) { w.lost("shop"); w.tested(nil) }, "tests are not reported"},
		"a test that has failed":  {func(w *environment) { w.lost("shop"); w.tested("Failed") }, "test smoke"},
		"no record":               {func(w *environment) { w.release("shop", named("shop", status(unknown()))) }, "no record"},
		"an annotation by others": {func(w *environment) { w.lost("shop"); w.annotate("shop", "yes") }, "cannot be read"},
		"in another cluster": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"spec": map[string]any{
				"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "other"}}}})
		}, "spec.kubeConfig"},
		"being deleted": {func(w *environment) {
			w.pendingRelease("shop", "pending-upgrade")
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"metadata": map[string]any{
				"deletionTimestamp": began.Format(time.RFC3339), "finalizers": []any{"a"}}})
		}, "being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.put(w)
			r := w.done(options())
			if len(r.Stuck) != 0 || len(w.Writes()) != 0 {
				t.Fatalf("it is touched: %+v, %v", r, w.Writes())
			}
			if tt.says == "" {
				if r.Healthy != 1 || len(r.Left) != 0 {
					t.Errorf("%+v", r)
				}
				return
			}
			if len(r.Left) != 1 {
				t.Fatalf("%+v", r)
			}
			wants(t, r.Left[0].Why, tt.says)
		})
	}
}

// tested turns on the tests of the chart of shop, with the phase of one that was reported; nil: none was.
func (w *environment) tested(phase any) {
	s := status(condition("Ready", "Unknown", "Progressing"))
	n := named("shop", s)
	if phase != nil {
		s["history"].([]any)[0].(map[string]any)["testHooks"] = map[string]any{"smoke": map[string]any{"phase": phase}}
	}
	n["spec"] = map[string]any{"test": map[string]any{"enable": true}}
	w.release("shop", n)
}

func (w *environment) annotate(name, value string) {
	w.Change(apiVersion, kind.Kind, "apps", name, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{AuditAnnotation: value}}})
}

func TestElevenAtOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.pendingRelease(fmt.Sprintf("a%d", i), "pending-upgrade")
		w.healthy(fmt.Sprintf("ok%d", i))
	}
	for i := range 5 {
		w.lost(fmt.Sprintf("b%d", i))
	}
	r, err := w.recover(options())
	var many *TooManyError
	if !errors.As(err, &many) || len(many.Names) != 11 || len(w.Writes()) != 0 || r.Healthy != 6 {
		t.Fatalf("%v, %+v, %v", err, r, w.Writes())
	}
	wants(t, err.Error(), "11 HelmReleases", "at most 10", "something larger is wrong", "apps/a0", "apps/b4")
	if r.Stuck[0].Outcome != Refused {
		t.Errorf("%+v", r.Stuck[0])
	}
	// Ten are recovered.
	w.Remove(apiVersion, kind.Kind, "apps", "a0")
	if r := w.done(options()); len(r.Stuck) != 10 || r.Stuck[9].Outcome != Recovered {
		t.Errorf("%+v", r)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.lost("lost")
	w.pendingRelease("shop", "pending-install")
	o := options()
	o.DryRun = true
	r := w.done(o)
	if len(r.Stuck) != 2 || r.Stuck[0].Outcome != WouldRecover || r.Stuck[1].Outcome != WouldRecover ||
		len(w.Writes()) != 0 {
		t.Fatalf("%+v, %v", r, w.Writes())
	}
	var page strings.Builder
	if err := r.Print(&page, 0); err != nil {
		t.Fatal(err)
	}
	wants(t, page.String(), "apps/shop", "would recover", recordOf("shop", "1"), "2 stuck, 2 would recover")
}

// TestKilled kills the process at each of its writes, before it leaves and after it was applied. The next run finishes.
func TestKilled(t *testing.T) {
	for _, of := range []Kind{Pending, Status} {
		for nth := 1; nth <= 3; nth++ {
			for _, applied := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, write %d, applied %v", of, nth, applied), func(t *testing.T) {
					w := newWorld(t)
					if of == Pending {
						w.pendingRelease("shop", "pending-upgrade")
					} else {
						w.lost("shop")
					}
					w.pass(time.Hour)
					r, err := Recover(t.Context(), w.killed(nth, applied), t.Logf, options())
					if err == nil || len(r.Stuck) != 1 || r.Stuck[0].Outcome != Failed {
						t.Fatalf("it was not killed: %+v, %v", r, err)
					}
					all := applied && nth == 3 // only the last reply was lost
					if r := w.done(options()); !all && (len(r.Stuck) != 1 || r.Stuck[0].Outcome != Recovered) {
						t.Fatalf("the next run does not finish it: %+v", r)
					}
					a := w.audit("shop")
					if a == nil || a.State != Done || a.Generation != w.get("shop").GetGeneration() || w.suspended("shop") {
						t.Errorf("annotation %+v, object %v", a, w.get("shop").Object)
					}
					if of == Pending && (w.has("shop", "2") || !w.has("shop", "1")) {
						t.Error("the records are not as they should be")
					}
					if of == Status && w.ready("shop")["status"] != "True" {
						t.Errorf("Ready is %v", w.ready("shop"))
					}
					writes := len(w.Writes())
					if w.done(options()); len(w.Writes()) != writes {
						t.Errorf("a third run changes something: %v", w.Writes()[writes:])
					}
				})
			}
		}
	}
}

// TestStatusRefused: the annotation is taken back where the status cannot be written.
func TestStatusRefused(t *testing.T) {
	w := newWorld(t)
	w.lost("shop")
	before := `{"state":"done","kind":"pending","generation":0}`
	w.annotate("shop", before)
	refuse := true
	w.Fail = func(r *http.Request) (int, string) {
		if refuse && strings.HasSuffix(r.URL.Path, "/status") {
			return http.StatusForbidden, "no status for you"
		}
		return 0, ""
	}
	r, err := w.recover(options())
	if err == nil || len(r.Stuck) != 1 || r.Stuck[0].Outcome != Failed {
		t.Fatalf("%+v, %v", r, err)
	}
	wants(t, err.Error(), "HelmRelease apps/shop", "no status for you")
	if got := w.get("shop").GetAnnotations()[AuditAnnotation]; got != before || w.ready("shop")["status"] != "Unknown" {
		t.Errorf("the annotation is %q, Ready is %v", got, w.ready("shop"))
	}
	refuse = false
	if r := w.done(options()); r.Stuck[0].Outcome != Recovered {
		t.Errorf("the next run: %+v", r)
	}
}

// TestRecordRefused: the object is resumed and its annotation taken back where the record cannot be deleted.
func TestRecordRefused(t *testing.T) {
	w := newWorld(t)
	w.pendingRelease("shop", "pending-upgrade")
	w.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusForbidden, "no deletion for you"
		}
		return 0, ""
	}
	r, err := w.recover(options())
	if err == nil || r.Stuck[0].Outcome != Failed || w.audit("shop") != nil || w.suspended("shop") || !w.has("shop", "2") {
		t.Fatalf("%+v, %v, %v", r, err, w.get("shop").Object)
	}
}

// afterSuspension is the request for Helm's records that follows on the suspension.
func afterSuspension(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/secrets") }

// TestOthersWin: whoever writes between the look and an effect wins, at each of them.
func TestOthersWin(t *testing.T) {
	report := func(w *environment) { // the controller reports
		w.Change(apiVersion, kind.Kind, "apps", "shop", named("shop", status(condition("Ready", "True", "UpgradeSucceeded"))))
	}
	for name, tt := range map[string]struct {
		put   func(*environment)
		other func(*environment)
		at    func(*http.Request) bool
	}{
		"the controller reports before the annotation": {func(w *environment) { w.lost("shop") }, report,
			func(r *http.Request) bool {
				return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/shop")
			}},
		"the controller reports before the status": {func(w *environment) { w.lost("shop") }, report,
			func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/status") }},
		"the controller reports before the suspension": {func(w *environment) { w.pendingRelease("shop", "pending-upgrade") },
			report, func(r *http.Request) bool { return r.Method == http.MethodPatch }},
		"Helm ends before the deletion": {func(w *environment) { w.pendingRelease("shop", "pending-upgrade") },
			func(w *environment) { w.record("shop", "2", "deployed") },
			func(r *http.Request) bool { return r.Method == http.MethodDelete }},
		"Helm ends after the suspension": {func(w *environment) { w.pendingRelease("shop", "pending-upgrade") },
			func(w *environment) { w.record("shop", "2", "deployed") }, afterSuspension},
		"another run has recovered it, and Helm begins again": {func(w *environment) { w.pendingRelease("shop", "pending-upgrade") },
			func(w *environment) {
				w.Remove("v1", "Secret", "apps", recordOf("shop", "2"))
				w.record("shop", "2", "pending-upgrade")
			}, afterSuspension},
		"Helm begins again after the suspension": {func(w *environment) { w.pendingRelease("shop", "pending-upgrade") },
			func(w *environment) { w.record("shop", "3", "pending-upgrade") }, afterSuspension},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.put(w)
			done := false
			w.Fail = func(r *http.Request) (int, string) {
				if !done && tt.at(r) && (!strings.HasSuffix(r.URL.Path, "/secrets") || w.suspended("shop")) {
					done = true
					tt.other(w)
				}
				return 0, ""
			}
			r := w.done(options())
			if !done || len(r.Stuck) != 1 || r.Stuck[0].Outcome != ChangedByOther {
				t.Fatalf("%v, %+v", done, r)
			}
			if w.suspended("shop") || w.audit("shop") != nil || !w.has("shop", "2") {
				t.Errorf("it is %v", w.get("shop").Object)
			}
			if c := w.ready("shop"); c["reason"] == reasonRecovered {
				t.Errorf("Ready is %v", c)
			}
		})
	}
}

// TestControllerNotesSuspension: the controller writes the status when it sees the object suspended; it is resumed all
// the same.
func TestControllerNotesSuspension(t *testing.T) {
	w := newWorld(t)
	w.pendingRelease("shop", "pending-upgrade")
	noted := false
	w.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPatch && w.suspended("shop") && !noted {
			noted = true
			w.Change(apiVersion, kind.Kind, "apps", "shop", map[string]any{"status": map[string]any{"observedGeneration": 2}})
		}
		return 0, ""
	}
	if r := w.done(options()); r.Stuck[0].Outcome != Recovered || !noted || w.suspended("shop") || w.has("shop", "2") {
		t.Errorf("%+v, %v", r, w.get("shop").Object)
	}
}

func TestNamespace(t *testing.T) {
	w := newWorld(t)
	w.lost("shop")
	o := options()
	o.Namespace = "other"
	if r := w.done(o); r.Healthy+len(r.Stuck)+len(r.Left) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestReleaseName(t *testing.T) {
	long := strings.Repeat("a", 50)
	for want, r := range map[string]func(*helmRelease){
		"shop":        func(*helmRelease) {},
		"target-shop": func(r *helmRelease) { r.Spec.TargetNamespace = "target" },
		"other":       func(r *helmRelease) { r.Spec.TargetNamespace, r.Spec.ReleaseName = "target", "other" },
		// sha256 of "aaaa-shop", with 50 times a
		long[:40] + "-" + "1edfbce388a5": func(r *helmRelease) { r.Spec.TargetNamespace = long },
	} {
		var is helmRelease
		is.Name = "shop"
		r(&is)
		if got := is.releaseName(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
