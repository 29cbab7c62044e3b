package releases

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/transport"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

const apiVersion = "helm.toolkit.fluxcd.io/v2"

// began is when the objects of a test were last written; its clock is an hour later.
var began = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

// environment is a cluster with Flux, whose controller is not there.
type environment struct {
	*kubetest.Server
	t       *testing.T
	cluster *kube.Cluster
	mu      sync.Mutex
	passed  time.Duration
	asked   []*http.Request
}

func newWorld(t *testing.T) *environment {
	t.Helper()
	w := &environment{t: t, Server: kubetest.New("uid", kubetest.Resource{Group: kind.Group, Version: kind.Version,
		Kind: kind.Kind, Plural: "helmreleases"})}
	t.Cleanup(w.Close)
	w.Strict = true
	w.Now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return began.Add(w.passed)
	}
	w.cluster = w.through(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			w.mu.Lock()
			w.asked = append(w.asked, r)
			w.mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	return w
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func (w *environment) through(wrap func(http.RoundTripper) http.RoundTripper) *kube.Cluster {
	w.t.Helper()
	through := kube.Connections{Wrap: func([]byte, bool) transport.WrapperFunc { return wrap }}
	c, err := through.Connect(w.Kubeconfig())
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *environment) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += d
}

// record stores a record of Helm in namespace apps.
func (w *environment) record(name, version, status string) {
	w.Put(kubetest.Object("v1", "Secret", "apps", recordOf(name, version), map[string]any{"type": "helm.sh/release.v1",
		"metadata": map[string]any{"labels": map[string]any{"owner": "helm", "name": name, "version": version,
			"status": status}}}))
}

func recordOf(name, version string) string { return "sh.helm.release.v1." + name + ".v" + version }

// release stores a HelmRelease of generation 1 with more fields.
func (w *environment) release(name string, more map[string]any) {
	o := kubetest.Object(apiVersion, kind.Kind, "apps", name, map[string]any{"spec": map[string]any{"interval": "1h"}})
	o.SetGeneration(1)
	merge(o.Object, more)
	w.Put(kubetest.Object(apiVersion, kind.Kind, "apps", name, o.Object))
}

func merge(into, more map[string]any) {
	for key, value := range more {
		if inner, ok := value.(map[string]any); ok {
			if was, ok := into[key].(map[string]any); ok {
				merge(was, inner)
				continue
			}
		}
		into[key] = value
	}
}

func condition(of, status, reason string) map[string]any {
	return map[string]any{"type": of, "status": status, "reason": reason, "message": "so it is",
		"lastTransitionTime": began.Format(time.RFC3339), "observedGeneration": 1}
}

// status is that of a HelmRelease at revision 2, with Ready as it is given.
func status(ready map[string]any, more ...map[string]any) map[string]any {
	conditions := []any{ready}
	for _, c := range more {
		conditions = append(conditions, c)
	}
	return map[string]any{"observedGeneration": 1, "storageNamespace": "apps", "conditions": conditions,
		"history": []any{
			map[string]any{"name": "NAME", "namespace": "apps", "version": 2, "status": "deployed", "chartName": "shop",
				"chartVersion": "1.2.3"},
			map[string]any{"name": "NAME", "namespace": "apps", "version": 1, "status": "superseded", "chartName": "shop",
				"chartVersion": "1.2.2"}}}
}

// named fills the release's name into a status.
func named(name string, s map[string]any) map[string]any {
	for _, h := range s["history"].([]any) {
		h.(map[string]any)["name"] = name
	}
	return map[string]any{"status": s}
}

// pendingRelease stores a HelmRelease whose controller died within an operation.
func (w *environment) pendingRelease(name, status string) {
	observed := 1
	if status == "pending-install" {
		observed = -1
	}
	w.release(name, map[string]any{"status": map[string]any{"observedGeneration": observed, "conditions": []any{
		condition("Ready", "Unknown", "Progressing"), condition("Reconciling", "True", "Progressing")}}})
	version := "1"
	if status != "pending-install" {
		w.record(name, "1", "deployed")
		version = "2"
	}
	w.record(name, version, status)
}

// lost stores a HelmRelease that is deployed, and whose controller's last report was lost.
func (w *environment) lost(name string) {
	w.release(name, named(name, status(condition("Ready", "Unknown", "Progressing"),
		condition("Reconciling", "True", "Progressing"))))
	w.record(name, "1", "superseded")
	w.record(name, "2", "deployed")
}

func (w *environment) healthy(name string) {
	w.release(name, named(name, status(condition("Ready", "True", "UpgradeSucceeded"))))
	w.record(name, "2", "deployed")
}

func options() Options { return Options{Threshold: DefaultThreshold, By: "slipway v9.9.9"} }

// recover runs Recover, after an hour has passed.
func (w *environment) recover(o Options) (Report, error) {
	w.t.Helper()
	w.pass(time.Hour)
	return Recover(w.t.Context(), w.cluster, w.t.Logf, o)
}

// done recovers, and wants no error.
func (w *environment) done(o Options) Report {
	w.t.Helper()
	r, err := w.recover(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *environment) get(name string) *unstructured.Unstructured {
	w.t.Helper()
	o := w.Get(apiVersion, kind.Kind, "apps", name)
	if o == nil {
		w.t.Fatalf("HelmRelease %s is gone", name)
	}
	return o
}

// audit is what the annotation of a HelmRelease says; nil: it has none.
func (w *environment) audit(name string) *Audit {
	w.t.Helper()
	a, err := auditOf(w.get(name).GetAnnotations())
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *environment) suspended(name string) bool {
	is, _, _ := unstructured.NestedBool(w.get(name).Object, "spec", "suspend")
	return is
}

func (w *environment) has(name, version string) bool {
	return w.Get("v1", "Secret", "apps", recordOf(name, version)) != nil
}

// ready is the condition of a HelmRelease.
func (w *environment) ready(name string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(w.get(name).Object, "status", "conditions")
	for _, c := range conditions {
		if c := c.(map[string]any); c["type"] == "Ready" {
			return c
		}
	}
	return nil
}

var errKilled = errors.New("the process was killed")

// killed is the cluster for a process that is killed at its nth write: before it leaves, or after it was applied.
func (w *environment) killed(nth int, applied bool) *kube.Cluster {
	writes := 0
	return w.through(func(next http.RoundTripper) http.RoundTripper {
		return tripper(func(r *http.Request) (*http.Response, error) {
			w.mu.Lock()
			if r.Method != http.MethodGet {
				writes++
			}
			now, dead := writes == nth && r.Method != http.MethodGet, writes > nth
			w.mu.Unlock()
			switch {
			case dead || now && !applied || writes == nth && !now:
				return nil, errKilled
			case now:
				if response, err := next.RoundTrip(r); err == nil {
					response.Body.Close()
				}
				return nil, errKilled
			}
			return next.RoundTrip(r)
		})
	})
}

func wants(t *testing.T, in string, all ...string) {
	t.Helper()
	for _, part := range all {
		if !strings.Contains(in, part) {
			t.Errorf("it does not say %q: %s", part, in)
		}
	}
}
