package pivot

import (
	"context"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// ServerIDs are the cluster's servers at Hetzner, sorted.
func ServerIDs(ctx context.Context, cfg config.Config, tools platform.Tools) ([]int64, error) {
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	ids := []int64{}
	for _, server := range servers {
		ids = append(ids, server.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// AwaitReconciled waits until the controllers of a cluster whose objects were put there, and unpaused, have looked at
// every one of them once and found it well. servers says at every look what is wrong with the servers that there are
// then; that ends it.
func AwaitReconciled(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer,
	say flow.Say, target *kube.Cluster, within time.Duration, servers func([]int64) error) (clusterUID string, ids []int64,
	err error) {
	say("waiting for the controllers to look at every object")
	watching, stop := context.WithCancel(ctx)
	defer stop()
	inNamespace := []client.ListOption{client.InNamespace(cfg.Namespace)}
	changes := target.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.ClusterKind), Options: inNamespace},
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: inNamespace},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: inNamespace},
		kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind), Options: inNamespace},
	)
	err = wait.Wait{What: "the cluster's own controllers", Within: within, Changes: changes,
		Explain: observer.Obstacles(target, situation.WatchedOf(cfg))}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			inv, err := capi.ReadInventory(ctx, target, cfg.Namespace)
			if err != nil {
				return "", err
			}
			ids, err = ServerIDs(ctx, cfg, tools)
			if err != nil {
				return "", err
			}
			if err := servers(ids); err != nil {
				return "", wait.Final(err)
			}
			for i := range inv.Moved {
				if o := &inv.Moved[i]; capi.ObjectKeyOf(o) == (capi.ObjectKey{Kind: capi.ClusterKind.GroupKind(),
					Name: cfg.ClusterName}) {
					clusterUID = string(o.GetUID())
				}
			}
			return strings.Join(connect.Unsettled(inv), "; "), nil
		})
	return clusterUID, ids, err
}
