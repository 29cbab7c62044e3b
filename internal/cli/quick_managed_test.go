//go:build unix

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// manageItself makes the cluster of the fake environment manage itself, as a pivot leaves it: the journal says so, and
// the kubeconfig in the state folder opens an API server that holds the cluster's objects.
func (q *quick) manageItself(t *testing.T) {
	t.Helper()
	journal := q.state().Journal()
	s, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uid := q.Management.Get("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "k8s").GetUID()
	s.Steps["pivot"] = flow.Record{State: flow.StateDone, Output: fmt.Appendf(nil, `{"cluster":%q,"servers":[]}`, uid)}
	if err := journal.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(q.state().Path("kubeconfig"), q.Management.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// command runs the command for the fake environment, and returns its exit code and what it printed.
func (q *quick) command(t *testing.T, args ...string) (int, string) {
	t.Helper()
	return q.commandDies(t, death{}, args...)
}

// commandDies is command with a death.
func (q *quick) commandDies(t *testing.T, d death, args ...string) (int, string) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := quickRun{
		dir: q.dir, death: d, stdout: out, environment: []string{settings.EndpointVariable + "=" + q.Hetzner.URL},
		args: append(args, "--state-dir", string(q.state()), "CILIUM_REPOSITORY="+q.charts, "HCLOUD_CCM_REPOSITORY="+q.charts,
			"TALOS_CCM_REPOSITORY="+q.charts, "MANAGEMENT_KUBECONFIG="+filepath.Join(q.dir, "kubeconfig")),
	}
	code := c.run(t)
	data, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return code, string(data) + c.stderr
}

func wantSaid(t *testing.T, what, said string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(said, word) {
			t.Errorf("%s does not say %q:\n%s", what, word, said)
		}
	}
}

// After the pivot a changed value is named, with what can be done, by plan, run and status alike; a run that asks for
// it is refused before it changes anything, and all asks first whether to apply it. A value that was changed with
// kubectl is a note.
func TestChangedConfigurationAfterThePivot(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	q.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	const is = "KUBERNETES_VERSION is v1.36.5 (argument KUBERNETES_VERSION=v1.36.5), and the cluster has v1.35.4; to " +
		"change the cluster: "
	before := q.look()
	code, said := q.command(t, "bootstrap", "KUBERNETES_VERSION=v1.36.5")
	if code != ExitUsage {
		t.Errorf("bootstrap: exit %d", code)
	}
	wantSaid(t, "bootstrap", said, is, "kubernetesVersion: v1.35.4 in bootstrap.yaml", "nothing was changed")
	code, said = q.command(t, "plan", "bootstrap", "KUBERNETES_VERSION=v1.36.5")
	if code != ExitDone {
		t.Errorf("plan bootstrap: exit %d", code)
	}
	wantSaid(t, "plan bootstrap", said, "the run would be REFUSED:", is)
	var refused struct{ Refused, Applies bool }
	_, said = q.command(t, "plan", "bootstrap", "KUBERNETES_VERSION=v1.36.5", "--output", "json")
	if err := json.Unmarshal([]byte(said), &refused); err != nil || !refused.Refused || refused.Applies {
		t.Errorf("plan bootstrap --output json: %v: %s", err, said)
	}
	code, said = q.command(t, "all", "LOCATION=fsn1")
	if code != ExitUsage {
		t.Errorf("all, what cannot be changed: exit %d", code)
	}
	wantSaid(t, "all", said, "it cannot be changed in a cluster that exists", "nothing was changed")
	code, said = q.command(t, "all", "LOAD_BALANCER_TYPE=lb21")
	if code != ExitUsage {
		t.Errorf("all: exit %d", code)
	}
	wantSaid(t, "all", said, "apply asks before")
	code, said = q.command(t, "plan", "all", "KUBERNETES_VERSION=v1.36.5")
	if code != ExitDone {
		t.Errorf("plan all: exit %d", code)
	}
	wantSaid(t, "plan all", said, forecast.AppliesHead, is,
		applyHead+"\nthe change is refused: the control plane is not whole")
	_, said = q.command(t, "status", "KUBERNETES_VERSION=v1.36.5")
	wantSaid(t, "status", said, forecast.RequestsHead, is)
	if after := q.look(); after != before {
		t.Errorf("a refused run changed something:\n%s", difference(before, after))
	}

	q.Management.Change("controlplane.cluster.x-k8s.io/v1alpha3", "TalosControlPlane", config.DefaultNamespace,
		"k8s-control-plane",
		map[string]any{"spec": map[string]any{"replicas": int64(5)}})
	before = q.look()
	const found = "CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5"
	code, said = q.command(t, "preflight")
	if code != ExitDone {
		t.Errorf("preflight: exit %d", code)
	}
	wantSaid(t, "a run", said, found, "controlPlaneReplicas: 5 in bootstrap.yaml")
	_, said = q.command(t, "plan", "--output", "json")
	var plan struct {
		Refused    bool
		Deviations []changes.Deviation
		Steps      []struct{ Step string }
	}
	if err := json.Unmarshal([]byte(said), &plan); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if plan.Refused || len(plan.Deviations) != 1 || plan.Deviations[0].Requested || plan.Deviations[0].Live != "5" {
		t.Errorf("plan: %+v", plan)
	}
	// The target bootstrap means what can be run after the pivot.
	for _, step := range []string{"access", "cilium", "hcloud-ccm", "talos-ccm"} {
		if !slices.ContainsFunc(plan.Steps, func(s struct{ Step string }) bool { return s.Step == step }) {
			t.Errorf("the plan lacks %s: %+v", step, plan.Steps)
		}
	}
	_, said = q.command(t, "status")
	wantSaid(t, "status", said, forecast.DriftHead, found)
	code, said = q.command(t, "wait-nodes")
	if code != ExitUsage {
		t.Errorf("wait-nodes: exit %d", code)
	}
	wantSaid(t, "a step before the pivot", said, "lies before pivot, a point of no return that was passed\n",
		"to continue from there: bootstrap all ")
	if after := q.look(); after != before {
		t.Errorf("something was changed:\n%s", difference(before, after))
	}
}

// A dry run at Hetzner does not need the management cluster that clean has deleted, nor its record.
func TestDryRunsAfterThePivot(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	files := q.state().Files()
	if err := errors.Join(os.Remove(files.Path(platform.ManagementKubeconfig)),
		connect.ForgetManagement(platform.Tools{Files: files})); err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{"scale control-plane 5 --dry-run", "upgrade --dry-run"} {
		c := quickRun{dir: q.dir, environment: []string{settings.EndpointVariable + "=" + q.Hetzner.URL},
			args: append(strings.Fields(words), "--state-dir", string(q.state()))}
		if code := c.run(t); strings.Contains(c.stderr, "panic:") || code == ExitUsage {
			t.Errorf("%s: exit %d: %s", words, code, c.stderr)
		}
	}
}

// plan --detailed-exitcode tells by its exit code whether a run would change something; a mistake is an error there.
func TestPlanDetailedExitCode(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	plan := func(want int, args ...string) string {
		t.Helper()
		code, said := q.command(t, append([]string{"plan", "--detailed-exitcode"}, args...)...)
		if code != want || want != ExitFailed && strings.Contains(said, "error:") {
			t.Errorf("plan %v: exit %d, want %d\n%s", args, code, want, said)
		}
		return said
	}
	plan(ExitChanges)
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	plan(ExitDone)
	plan(ExitChanges, "LOAD_BALANCER_TYPE=lb21")
	wantSaid(t, "plan", plan(ExitFailed, "CONTROL_PLANE_REPLICAS=two"), "CONTROL_PLANE_REPLICAS")
	q.manageItself(t)
	plan(ExitChanges, "KUBERNETES_VERSION=v1.36.5")
}

// A change of the configuration that was cut off is named, and no upgrade takes its place.
func TestApplyWasCutOff(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	begun := upgrade.Examination{Configuration: []string{"changes HetznerCluster k8s in place"},
		Stages: []upgrade.Stage{{Name: upgrade.StageConfiguration}}}
	if err := upgrade.Begin(q.state().Files(), begun, upgrade.Said{Again: []string{"apply", "SERVER_TYPE=cx43"}}); err != nil {
		t.Fatal(err)
	}
	code, said := q.command(t, "upgrade", "--yes", "KUBERNETES_VERSION=v1.36.5")
	if code != ExitUsage {
		t.Errorf("upgrade: exit %d", code)
	}
	wantSaid(t, "upgrade", said, "apply SERVER_TYPE=cx43")
	_, said = q.command(t, "status")
	wantSaid(t, "status", said, "was cut off before stage configuration", "apply SERVER_TYPE=cx43")
	// One of versions alone is resumed by all, too, also once the cluster's objects have the version.
	files := q.state().Files()
	begun = upgrade.Examination{From: upgrade.Versions{"KUBERNETES_VERSION": "v1.35.4"},
		To: upgrade.Versions{"KUBERNETES_VERSION": "v1.36.5"}, Stages: []upgrade.Stage{{Name: "kubernetes-1-36-5"}}}
	again := upgrade.Said{Again: []string{"apply", "KUBERNETES_VERSION=v1.36.5"}}
	if err := upgrade.Begin(files, begun, again); err != nil {
		t.Fatal(err)
	}
	for _, is := range []string{"v1.35.4", "v1.36.5"} {
		q.Management.Change(controlPlaneVersion, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
			map[string]any{"spec": map[string]any{"version": is}})
		var f forecast.Forecast
		_, said = q.command(t, "plan", "all", "KUBERNETES_VERSION=v1.36.5", "--output", "json")
		if err := json.Unmarshal([]byte(said), &f); err != nil || !f.Applies || !f.NeedsConsent || len(f.Begun) != 1 {
			t.Errorf("the cluster has %s: %v: %s", is, err, said)
		}
	}
}

// A changed number of control plane servers is a part of what apply does, also where its scaling was begun; servers are
// deleted with consent alone.
func TestApplyScales(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	q.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	replicas := func(n int64) {
		q.Management.Change(controlPlaneVersion, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
			map[string]any{"spec": map[string]any{"replicas": n}})
	}
	replicas(5) // with scale: the configuration was not changed, and apply makes no request of that
	if code, said := q.command(t, "apply"); code != ExitDone || !strings.Contains(said, "there is nothing to change") {
		t.Errorf("after a scaling: exit %d\n%s", code, said)
	}
	if code, said := q.command(t, "plan", "all"); code != ExitDone || strings.Contains(said, "REFUSED") ||
		!strings.Contains(said, "CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5") {
		t.Errorf("plan after apply: exit %d\n%s", code, said)
	}
	replicas(3)
	scales := func(to int) {
		t.Helper()
		code, said := q.command(t, "plan", "apply", "--output", "json", fmt.Sprintf("CONTROL_PLANE_REPLICAS=%d", to))
		var plan struct {
			Scale struct {
				Servers int
				Change  struct{ From, To int }
			}
		}
		if err := json.Unmarshal([]byte(said), &plan); err != nil || code != ExitDone {
			t.Fatalf("exit %d, %v: %s", code, err, said)
		}
		if is := plan.Scale; is.Servers != to || is.Change.From != 3 || is.Change.To != to {
			t.Errorf("to %d servers: %+v\n%s", to, plan, said)
		}
	}
	scales(5)
	scales(1)
	before := q.look()
	var broken atomic.Int64
	q.Management.Fail = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/hetznerclusters") && broken.Add(1) == 1 {
			return kubetest.Garbled, ""
		}
		return 0, ""
	}
	code, said := q.command(t, "apply", "CONTROL_PLANE_REPLICAS=1")
	if code != ExitUsage || !strings.Contains(said, "scale deletes servers and asks before") ||
		!strings.Contains(said, "trying the comparison again") {
		t.Errorf("without consent, and a connection that broke: exit %d\n%s", code, said)
	}
	if after := q.look(); after != before {
		t.Errorf("something was changed:\n%s", difference(before, after))
	}
	scales(1)
	begun := scale.Change{Group: scale.ControlPlaneGroup, From: 3, To: 1}
	if err := scale.Begin(q.state().Files(), begun, true); err != nil {
		t.Fatal(err)
	}
	scales(1)
	code, said = q.command(t, "apply", "CONTROL_PLANE_REPLICAS=1")
	if code != ExitUsage || !strings.Contains(said, "scale deletes servers and asks before") {
		t.Errorf("resumed without consent: exit %d\n%s", code, said)
	}
	scales(1)
	scales(3) // it is taken back
}

// What apply has brought to the cluster can be taken back: what the step access saw before does not count any more.
func TestAppliedIsTakenBack(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	journal := q.state().Journal()
	s, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Steps["access"] = flow.Record{State: flow.StateDone, Ended: time.Now(), Output: []byte(`{"values":{"LOAD_BALANCER_TYPE":"lb11"}}`)}
	if err := journal.Save(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	cfg := config.Defaults()
	cfg.LoadBalancerType = "lb21"
	sources, err := render.Read(render.VariablesOf(cfg), "")
	if err == nil {
		err = changes.RecordApplied(t.Context(), cfg, platform.Tools{Files: q.state().Files()}, sources, journal)
	}
	if err != nil {
		t.Fatal(err)
	}
	q.Management.Change("infrastructure.cluster.x-k8s.io/v1beta1", "HetznerCluster", config.DefaultNamespace, "k8s",
		map[string]any{"spec": map[string]any{"controlPlaneLoadBalancer": map[string]any{"type": "lb21"}}})
	code, said := q.command(t, "bootstrap", "LOAD_BALANCER_TYPE=lb11")
	if code != ExitUsage {
		t.Errorf("exit %d", code)
	}
	wantSaid(t, "bootstrap", said, "LOAD_BALANCER_TYPE is lb11 (argument LOAD_BALANCER_TYPE=lb11), and the cluster has "+
		"lb21; to change the cluster: bootstrap apply")
}
