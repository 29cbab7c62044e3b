//go:build unix

package cli

import (
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// written counts the requests for a change, without the question whether the token may write.
func (q *quick) written() int {
	asks := func(request string) bool { return request == "DELETE /placement_groups/0" }
	return len(q.Management.Writes()) + len(slices.DeleteFunc(q.Hetzner.Writes(), asks))
}

// A run of which a later step needs consent, or cannot be done as it is configured, writes nothing in the steps before.
func TestRefusedRunWritesNothing(t *testing.T) {
	q := withOldToken(t) // so that token and hcloud-ccm have something to write
	q.Management.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "MachineDeployment", config.DefaultNamespace, "k8s-general",
		map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"cluster.x-k8s.io/cluster-name": "k8s",
				capi.WorkerPoolLabel: "general"}},
			"spec": map[string]any{"replicas": int64(3), "template": map[string]any{"spec": map[string]any{
				"version": "v1.35.4", "infrastructureRef": map[string]any{"name": "k8s-general-made-by-hand"},
				"bootstrap": map[string]any{"configRef": map[string]any{"name": "k8s-general-made-by-hand"}}}}},
		}))
	paused := func(is bool) {
		q.Management.Change("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "k8s",
			map[string]any{"spec": map[string]any{"paused": is}})
	}
	for _, tt := range []struct {
		name   string
		args   []string
		paused bool
		says   string
	}{
		{"without consent", []string{"bootstrap", "WORKERS=1"}, false, "servers of MachineDeployment k8s-general"},
		{"paused", []string{"bootstrap", "WORKERS=1", "--yes"}, true, "the Cluster object of k8s is paused"},
		{"version", []string{"hcloud-ccm", "workers", "WORKERS=1", "--yes", "KUBERNETES_VERSION=v1.36.5"}, false,
			"the control plane has Kubernetes v1.35.4 and the workers are to get v1.36.5"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			paused(tt.paused)
			before, writes := q.look(), q.written()
			code, said := q.command(t, tt.args...)
			if code != ExitUsage {
				t.Errorf("exit %d", code)
			}
			wantSaid(t, "the run", said, tt.says, "nothing was changed")
			if now := q.written(); now != writes {
				t.Errorf("it wrote %d times: %s", now-writes, difference(before, q.look()))
			}
		})
	}
}
