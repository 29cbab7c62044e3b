package rotation

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
)

// pausedAnnotation marks a pause that a rotation made, also one that was cut off. Other pauses do not have it.
const pausedAnnotation = "slipway.dev/held-for-rotation"

// pause pauses the cluster. A server that Cluster API made meanwhile would know the old authorities alone, or the new
// ones alone, and could not join those that have not come as far.
func (in inputs) pause(ctx context.Context, say flow.Say, manager *kube.Cluster) error {
	cluster, err := capi.Get(ctx, manager, in.cfg.Namespace, capi.ClusterKind, in.cfg.ClusterName)
	if err != nil {
		return err
	}
	if connect.Paused(cluster) {
		return nil
	}
	say("pausing Cluster API until the rotation has ended")
	if err := capi.Annotate(ctx, manager, cluster, map[string]any{pausedAnnotation: "true"}); err != nil {
		return fmt.Errorf("pause the cluster: %w", err)
	}
	return capi.SetPaused(ctx, in.cfg, manager, true)
}

// unpause removes the pause of the rotation, and no other.
func (in inputs) unpause(ctx context.Context, say flow.Say, manager *kube.Cluster) error {
	cluster, err := capi.Get(ctx, manager, in.cfg.Namespace, capi.ClusterKind, in.cfg.ClusterName)
	if err != nil || cluster.GetAnnotations()[pausedAnnotation] == "" {
		return err
	}
	say("unpausing Cluster API")
	if err := capi.SetPaused(ctx, in.cfg, manager, false); err != nil {
		return err
	}
	if err := capi.Annotate(ctx, manager, cluster, map[string]any{pausedAnnotation: nil}); err != nil {
		return fmt.Errorf("unpause the cluster: %w", err)
	}
	return nil
}
