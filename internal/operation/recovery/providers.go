package recovery

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Quiet is what was stopped.
type Quiet struct {
	Deployments []string `json:"deployments,omitempty"`
}

// Sweep is what of the lost servers was taken out of the cluster.
type Sweep struct {
	Nodes   []string `json:"nodes,omitempty"`
	Objects int      `json:"objects,omitempty"`
	Paused  []string `json:"paused,omitempty"` // other clusters, as namespace/name
}

// RemoveProviders removes the providers from a cluster, and their inventory, so that they are installed again whole.
func RemoveProviders(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	all := &appsv1.DeploymentList{}
	if err := workload.List(ctx, all, client.HasLabels{capi.ProviderLabel}); err != nil {
		return fmt.Errorf("list the providers' Deployments: %w", err)
	}
	for i := range all.Items {
		d := &all.Items[i]
		if err := client.IgnoreNotFound(workload.Delete(ctx, d, client.PropagationPolicy("Background"))); err != nil {
			return fmt.Errorf("delete Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
	installed := capi.ListOf(capi.ProviderKind)
	if err := workload.List(ctx, installed); err != nil {
		if kube.Absent(err) {
			return nil
		}
		return fmt.Errorf("list the installed providers: %w", err)
	}
	for i := range installed.Items {
		say("forgetting that %s is installed: it is installed again", installed.Items[i].GetName())
		if err := client.IgnoreNotFound(workload.Delete(ctx, &installed.Items[i])); err != nil {
			return fmt.Errorf("delete Provider %s: %w", installed.Items[i].GetName(), err)
		}
	}
	return nil
}

// FalseFirst compares two booleans for a sort: false comes before true.
func FalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// QuietWithin is how long the API server of a restored cluster, on one member of etcd, may take for some ten writes.
const QuietWithin = 5 * time.Minute
