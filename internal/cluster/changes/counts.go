package changes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/platform"
)

// ReplicasVariable is the variable with the number of control plane servers.
const ReplicasVariable = "CONTROL_PLANE_REPLICAS"

// PoolReplicas is what the number of servers of a worker pool is called in a Deviation, which has no variable for it.
func PoolReplicas(name string) string { return "replicas of worker pool " + name }

// DeviatingCounts lists the numbers of servers that the configuration has had since it was last applied and the cluster
// has not: the group was scaled. No run brings the number back by itself, so each is a note. A number that was changed
// in the configuration is left out: the next run applies it, and says what that does. manager is the cluster that
// manages this one; self tells that it is the cluster itself, whose control plane Find compares.
func DeviatingCounts(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster, self bool,
	recorded flow.Snapshot, origin DeviationOrigin) (found []Deviation, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, ComparedWithin, fmt.Errorf("no answer within %s", ComparedWithin))
	defer cancel()
	if wanted := strconv.Itoa(cfg.ControlPlaneReplicas); !self &&
		appliedLast(tools, recorded).values[ReplicasVariable] == wanted {
		tcp, err := capi.Get(ctx, manager, cfg.Namespace, capi.TalosControlPlaneKind, cfg.ControlPlaneName())
		if err != nil {
			return nil, err
		}
		if live := strconv.FormatInt(capi.Number(tcp, "spec", "replicas"), 10); live != wanted {
			place, _ := origin("controlPlaneReplicas")
			d := Deviation{Variable: ReplicasVariable, Field: "controlPlaneReplicas", Place: place, Wanted: wanted,
				Live: live, Change: tools.Command("scale", "control-plane", wanted)}
			d.Keep = d.keep()
			found = append(found, d)
		}
	}
	ofPools, err := poolCounts(ctx, cfg, tools, manager, recorded, origin)
	return append(found, ofPools...), err
}

func poolCounts(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster,
	recorded flow.Snapshot, origin DeviationOrigin) (found []Deviation, err error) {
	var applied struct{ Pools []config.WorkerPool }
	if json.Unmarshal(recorded.Steps["workers"].Spec, &applied) != nil || len(applied.Pools) == 0 {
		return nil, nil
	}
	deployments, _, err := pools.Live(ctx, manager, cfg.Namespace, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	live := map[string]int{}
	for i := range deployments {
		live[deployments[i].GetLabels()[capi.WorkerPoolLabel]] += orders.Replicas(&deployments[i])
	}
	for i, p := range cfg.Workers {
		same := slices.ContainsFunc(applied.Pools, func(was config.WorkerPool) bool {
			return was.Name == p.Name && was.Replicas == p.Replicas && was.Max == p.Max
		})
		if has, exists := live[p.Name]; !same || p.Autoscaled() || !exists || has == p.Replicas {
			continue
		}
		place, _ := origin(fmt.Sprintf("workers[%d].replicas", i))
		found = append(found, Deviation{Variable: PoolReplicas(p.Name), Field: "workers", Place: place,
			Wanted: strconv.Itoa(p.Replicas), Live: strconv.Itoa(live[p.Name]),
			Change: tools.Command("scale", "workers/"+p.Name, strconv.Itoa(p.Replicas)),
			Keep:   fmt.Sprintf("replicas: %d of worker pool %s in bootstrap.yaml", live[p.Name], p.Name)})
	}
	return found, nil
}
