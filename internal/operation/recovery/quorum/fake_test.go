package quorum

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/recoverytest"
)

// replicasIn is how many replicas the control plane provider is to have.
func replicasIn(w *clustertest.Environment) string {
	spec, _ := w.Workload.Get("apps/v1", "Deployment", "cacppt-system", "manager").Object["spec"].(map[string]any)
	return fmt.Sprint(spec["replicas"])
}

// brokenCluster is such a cluster, with the inputs of its recovery's steps.
func brokenCluster(t *testing.T, e *recoverytest.BrokenEtcd) (*clustertest.Environment, inputs) {
	t.Helper()
	w, cfg, tools := recoverytest.BrokenCluster(t, e)
	return w, inputs{
		cfg: cfg, tools: tools, patience: 5 * time.Millisecond, every: time.Millisecond,
		inspect: func(string, string) (etcd.Content, error) {
			return etcd.Content{UID: "workload", Revision: 1, Keys: 12}, nil
		},
	}
}

// recovered fails unless etcd is one and whole, and everybody was let go.
func recovered(t *testing.T, e *recoverytest.BrokenEtcd, w *clustertest.Environment) {
	t.Helper()
	members := slices.Clone(e.Members)
	slices.Sort(members)
	if len(e.Old) > 0 || !slices.Equal(members, e.Servers) {
		t.Errorf("the members are %v, and %v hold the old data", members, e.Old)
	}
	if len(e.Wrong) > 0 {
		t.Errorf("%v in %v", e.Wrong, e.Calls)
	}
	if !strings.HasPrefix(e.Calls[0], "snapshot of ") {
		t.Errorf("before a snapshot is kept it does %v", e.Calls)
	}
	cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
	if capi.Truth(cluster, "spec", "paused") || len(cluster.GetAnnotations()) > 0 {
		t.Errorf("the Cluster is left %v", cluster.Object)
	}
	provider := w.Workload.Get("apps/v1", "Deployment", "cacppt-system", "manager")
	if replicasIn(w) != "2" || provider.GetAnnotations()[replicasAnnotation] != "" {
		t.Errorf("the control plane provider is left %v", provider.Object)
	}
}
