package changes_test

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

type object = clustertest.Map

// A number of servers that the cluster was scaled to is named with the two commands of which one removes the
// difference; one that was changed in the configuration is left to the next run.
func TestCounts(t *testing.T) {
	w := clustertest.New(t)
	w.Management.Put(kubetest.Object(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace,
		"k8s-control-plane",
		object{"spec": object{"replicas": 5}}))
	for name, replicas := range map[string]int{"k8s-db": 9, "k8s-db-2": 3, "k8s-auto": 4} {
		pool := strings.TrimSuffix(strings.TrimPrefix(name, "k8s-"), "-2")
		w.Management.Put(kubetest.Object(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, name, object{
			"metadata": object{"labels": object{capi.WorkerPoolLabel: pool, capi.ClusterNameLabel: "k8s"}},
			"spec":     object{"replicas": replicas}}))
	}
	cfg := w.Config()
	cfg.Workers = config.WorkerPools{{Name: "db", Replicas: 10}, {Name: "auto", Min: 1, Max: 5}, {Name: "new",
		Replicas: 1}}
	recorded := flow.Snapshot{Steps: map[string]flow.Record{
		"apply":   {Spec: []byte(`{"cluster":{"variables":{"CONTROL_PLANE_REPLICAS":"3"}}}`)},
		"workers": {Spec: []byte(`{"pools":[{"name":"db","replicas":10},{"name":"auto","min":1,"max":5}]}`)},
	}}
	manager, err := w.Tools().WithDefaults().Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	origin := func(field string) (string, bool) { return "bootstrap.yaml:3:12", true }
	counts := func(self bool) string {
		t.Helper()
		found, err := changes.DeviatingCounts(t.Context(), cfg, w.Tools(), manager, self, recorded, origin)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, d := range found {
			lines = append(lines, d.String())
			if d.Requested {
				t.Errorf("%s is no request", d)
			}
		}
		return strings.Join(lines, "\n")
	}
	const plane = "CONTROL_PLANE_REPLICAS is 3 (bootstrap.yaml:3:12), and the cluster has 5; to change the cluster: " +
		"bootstrap scale control-plane 3; to keep it: controlPlaneReplicas: 5 in bootstrap.yaml"
	const pool = "replicas of worker pool db is 10 (bootstrap.yaml:3:12), and the cluster has 12; to change the " +
		"cluster: bootstrap scale workers/db 10; to keep it: replicas: 12 of worker pool db in bootstrap.yaml"
	if is := counts(false); is != plane+"\n"+pool {
		t.Errorf("before the pivot:\n%s", is)
	}
	if is := counts(true); is != pool {
		t.Errorf("after it, when the control plane is compared with everything else:\n%s", is)
	}
	cfg.ControlPlaneReplicas, cfg.Workers[0].Replicas = 7, 11
	if is := counts(false); is != "" {
		t.Errorf("what the configuration asks for is left to the run:\n%s", is)
	}
	cfg.ControlPlaneReplicas, cfg.Workers = 3, nil
	recorded = flow.Snapshot{}
	if is := counts(false); is != "" {
		t.Errorf("without a record:\n%s", is)
	}
}
