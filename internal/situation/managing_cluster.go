package situation

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// ManagingCluster finds the cluster that has the Cluster object, unpaused: after a pivot the cluster itself, else the
// temporary management cluster. where describes it for people. It fails where neither has the object, where the object
// is paused or being deleted, and where a cluster that may have it does not answer.
func ManagingCluster(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	say flow.Say) (_ *kube.Cluster, where string, err error) {
	self, selfErr := SelfManaged(ctx, cfg, tools, sources)
	source, _, sourceErr := management.Open(ctx, cfg, tools, say)
	for _, c := range []struct {
		cluster *kube.Cluster
		where   string
	}{{self, "the cluster itself"}, {source, "management cluster " + cfg.ManagementName()}} {
		if c.cluster == nil {
			continue
		}
		object, err := management.FindCluster(ctx, cfg, c.cluster)
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("%s: %w", c.where, err)
		case object == nil:
			continue
		case object.GetDeletionTimestamp() != nil:
			return nil, "", fmt.Errorf("%s is being deleted", kube.Describe(object))
		case !management.Paused(object):
			return c.cluster, c.where, nil
		}
		selfErr = errors.Join(selfErr, fmt.Errorf("%s is paused in %s: unpause it, or let pivot finish",
			kube.Describe(object), c.where))
	}
	if err := errors.Join(selfErr, sourceErr); err != nil {
		return nil, "", fmt.Errorf("no cluster manages cluster %s: %w", cfg.ClusterName, err)
	}
	return nil, "", fmt.Errorf("no cluster manages cluster %s: neither it nor a management cluster holds its Cluster object",
		cfg.ClusterName)
}
