//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

const controlPlaneKind = "controlplane.cluster.x-k8s.io/v1alpha3"

// An upgrade that was cut off comes first in status, plan and every run, with the command that resumes it. Its hold is
// not to be removed, and the version that it brings is no deviation. A run that asks for that version is refused until
// the upgrade has ended.
func TestAnUpgradeThatWasCutOffComesFirst(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	if err := upgrade.Begin(q.state().Files(),
		upgrade.Examination{From: upgrade.Versions{"KUBERNETES_VERSION": "v1.35.4"},
			To: upgrade.Versions{"KUBERNETES_VERSION": "v1.36.5"}, Stages: []upgrade.Stage{{Name: "kubernetes-1-36-5"}}},
		upgrade.Said{Again: []string{"upgrade", "KUBERNETES_VERSION=v1.36.5"}}); err != nil {
		t.Fatal(err)
	}
	code, said := q.command(t, "all", "KUBERNETES_VERSION=v1.36.5") // the cluster has v1.35.4
	if code != ExitUsage || strings.Contains(said, "and the cluster has") {
		t.Errorf("a run that asks for what the upgrade brings: exit %d\n%s", code, said)
	}
	wantSaid(t, "the run", said, "begun and has not ended brings KUBERNETES_VERSION to the cluster: resume it first")

	q.Management.Change(controlPlaneKind, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		map[string]any{"spec": map[string]any{"version": "v1.36.5"},
			"metadata": map[string]any{"annotations": map[string]any{
				"cluster.x-k8s.io/paused": "true", "slipway.dev/upgrade-held": "true"}}})
	const cut, again = "was cut off before stage kubernetes-1-36-5", "bootstrap upgrade KUBERNETES_VERSION=v1.36.5 "
	code, said = q.command(t, "status")
	if code != ExitDone || !strings.HasPrefix(said, "an upgrade to ") || strings.Contains(said, "remove spec.paused") ||
		strings.Contains(said, "and the cluster has") {
		t.Errorf("status: exit %d\n%s", code, said)
	}
	wantSaid(t, "status", said, cut, "run the same again: "+again, "an upgrade holds it")
	code, said = q.command(t, "plan", "all")
	if code != ExitDone || !strings.HasPrefix(said, "an upgrade to ") || strings.Contains(said, "and the cluster has") {
		t.Errorf("plan: exit %d\n%s", code, said)
	}
	wantSaid(t, "plan", said, cut, again)
	code, said = q.command(t, "preflight")
	if code != ExitDone || strings.Contains(said, "and the cluster has") {
		t.Errorf("preflight: exit %d\n%s", code, said)
	}
	wantSaid(t, "a run", said, cut, again)
	_, said = q.command(t, "status", "--output", "json")
	var r status.Report
	if err := json.Unmarshal([]byte(said), &r); err != nil || len(r.Begun) != 1 || len(r.Deviations) > 0 {
		t.Errorf("%v: %+v", err, r.Begun)
	}
	var f forecast.Forecast
	_, said = q.command(t, "plan", "all", "--output", "json")
	if err := json.Unmarshal([]byte(said), &f); err != nil || len(f.Begun) != 1 || len(f.Deviations) > 0 {
		t.Errorf("%v: %+v", err, f.Begun)
	}
}

// A scaling that fails, or is killed, is recorded until the same command has ended.
func TestAScalingThatWasCutOffIsRecorded(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.manageItself(t)
	for _, name := range q.Servers() { // it is whole, and no server is added within the time
		q.Management.Put(q.Workload.Get("v1", "Node", "", name))
	}
	clustertest.Define(q.Management, clustertest.ClusterAPIKinds())
	code, said := q.command(t, "scale", "control-plane", "5", "--skip-doctor", "--yes", "CONTROL_PLANE_TIMEOUT=2s",
		"NODES_TIMEOUT=2s")
	if all, err := scale.Records(q.state().Files()); err != nil || len(all) != 1 || all[0].To != 5 || code != ExitFailed {
		t.Fatalf("exit %d, %v, %v\n%s", code, all, err, said)
	}
	_, said = q.command(t, "status")
	wantSaid(t, "status", said, "the scaling of the control plane from 3 to 5 servers", "was cut off",
		"bootstrap scale control-plane 5 ")
}

// The command that resumes an upgrade has the versions that were given to it, also those of the environment.
func TestUpgradeAgain(t *testing.T) {
	given := []settings.Assignment{settings.Assign("KUBERNETES_VERSION", "v1.36.5"),
		settings.Assign("SERVER_TYPE", "cx43")}
	environment := map[string]string{"TALOS_VERSION": "v1.13.9", "LOCATION": "nbg1"}
	for want, o := range map[string]upgradeOptions{
		"upgrade TALOS_VERSION=v1.13.9 KUBERNETES_VERSION=v1.36.5": {PauseAfter: "talos"},
		"upgrade --to-set current --via v1.32.9,v1.33.1 --in-place KUBERNETES_VERSION=v1.36.5": {ToSet: "current",
			InPlace: true,
			Via:     []string{"v1.32.9", "v1.33.1"}},
	} {
		if is := strings.Join(upgradeAgain(given, environment, o), " "); is != want {
			t.Errorf("%q, want %q", is, want)
		}
	}
}

// Before the pivot, too, a number of servers that is not the configuration's is named by status, plan and every run.
func TestAScaledControlPlaneIsNamed(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	q.Management.Change(controlPlaneKind, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		map[string]any{"spec": map[string]any{"replicas": int64(5)}})
	for _, target := range []string{"status", "plan", "preflight"} {
		_, said := q.command(t, target)
		wantSaid(t, target, said, "CONTROL_PLANE_REPLICAS is 3 (default), and the cluster has 5",
			"controlPlaneReplicas: 5 in bootstrap.yaml")
	}
}

// A folder that knows nothing of a cluster that exists: plan and status say what exists, that a run is refused, and how
// to go on; with the kubeconfig of what manages it, that a run takes it over. Afterwards the first folder is refused.
func TestAFolderThatDoesNotKnowTheCluster(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	clustertest.Define(q.Management, slices.DeleteFunc(clustertest.ClusterAPIKinds(), func(r kubetest.Resource) bool {
		return r.Kind == "TalosConfigTemplate" // which this management cluster does not serve
	}))
	first := q.folder
	q.folder = "another"
	empty := kubetest.New("empty")
	t.Cleanup(empty.Close)
	manage := func(by []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(q.dir, "kubeconfig"), by, 0o600); err != nil { // MANAGEMENT_KUBECONFIG
			t.Fatal(err)
		}
	}
	manage(empty.Kubeconfig())
	for _, target := range []string{"status", "plan"} {
		code, said := q.command(t, target)
		if code != ExitDone || strings.Contains(said, "there is none yet") {
			t.Errorf("%s: exit %d\n%s", target, code, said)
		}
		wantSaid(t, target, said, "cluster k8s exists in this Hetzner project, and this state folder did not create it: "+
			"there are "+
			"server ", "A run is refused", "MANAGEMENT_KUBECONFIG", "restore", "readopt")
	}
	_, said := q.command(t, "plan")
	wantSaid(t, "plan", said, "reserve fails", "not be reached")
	manage(q.Management.Kubeconfig())
	_, said = q.command(t, "plan")
	wantSaid(t, "with the management cluster", said, "takes it over and does not bootstrap it", "adopt", "it only looks")
	_, said = q.command(t, "plan", "all", "--output", "json")
	var f forecast.Forecast
	if err := json.Unmarshal([]byte(said), &f); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	would := map[string]flow.Action{}
	for _, s := range f.Steps {
		would[s.Step] = s.Would
	}
	for step, want := range map[string]flow.Action{"reserve": flow.ActionRun, "image": flow.ActionAdopt,
		"kind-create": flow.ActionAdopt, "capi-init": flow.ActionAdopt, "secret": flow.ActionAdopt, "apply": flow.ActionAdopt,
		"wait-cp": flow.ActionAdopt, "cilium": flow.ActionAdopt, "hcloud-ccm": flow.ActionAdopt, "workers": flow.ActionAdopt,
		"pivot": flow.ActionRun, "token": flow.ActionRun, "firewall": flow.ActionRun} {
		if would[step] != want {
			t.Errorf("%s: %q, want %q; %s", step, would[step], want, f.Unforeseen)
		}
	}
	if code, said := q.command(t, "reserve"); code != ExitDone {
		t.Fatalf("exit %d: %s", code, said)
	}
	q.folder = first
	for _, target := range []string{"all", "access"} {
		code, said := q.command(t, target)
		if code != ExitUsage {
			t.Errorf("%s in the old folder: exit %d", target, code)
		}
		wantSaid(t, target, said, "is another state folder's now")
	}
	_, said = q.command(t, "status")
	wantSaid(t, "status in the old folder", said, "is another state folder's now")
}
