package situation

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// ManagingCluster finds the cluster that has the Cluster object, unpaused: after a pivot the cluster itself, else the
// temporary management cluster. where describes it for people. It fails where neither has the object, where the object
// is paused or being deleted, and where a cluster that may have it does not answer: then that is not known.
func ManagingCluster(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	say flow.Say) (_ *kube.Cluster, where string, err error) {
	return ManagingPaused(ctx, cfg, tools, sources, say, "")
}

// ManagingPaused is ManagingCluster where the object may be paused by an operation that has set an annotation on it;
// empty: it may not.
func ManagingPaused(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	say flow.Say, annotation string) (_ *kube.Cluster, where string, err error) {
	self, selfErr := SelfManaged(ctx, cfg, tools, sources)
	source, _, sourceErr := connect.OpenManagement(ctx, cfg, tools, say)
	var unknown, paused []error
	for _, c := range []struct {
		cluster     *kube.Cluster
		err         error
		where, file string
	}{{self, selfErr, "the cluster itself", platform.Kubeconfig},
		{source, sourceErr, "management cluster " + cfg.ManagementName(), platform.ManagementKubeconfig}} {
		if c.err != nil {
			unknown = append(unknown, unanswered(tools, c.where, c.file, c.err))
			continue
		}
		if c.cluster == nil {
			continue
		}
		object, err := connect.FindCluster(ctx, cfg, c.cluster)
		switch {
		case err != nil:
			unknown = append(unknown, unanswered(tools, c.where, c.file, err))
		case object == nil:
		case object.GetDeletionTimestamp() != nil:
			return nil, "", fmt.Errorf("%s is being deleted", kube.Describe(object))
		case !connect.Paused(object) || annotation != "" && object.GetAnnotations()[annotation] != "":
			return c.cluster, c.where, nil
		default:
			paused = append(paused, fmt.Errorf("%s is paused in %s: unpause it, or let pivot finish",
				kube.Describe(object), c.where))
		}
	}
	switch {
	case len(unknown) > 0:
		return nil, "", fmt.Errorf("which cluster manages cluster %s cannot be determined, and nothing was changed: %w; run "+
			"again once it answers (%s says what keeps it)", cfg.ClusterName, errors.Join(append(unknown, paused...)...),
			tools.Command("status"))
	case len(paused) > 0:
		return nil, "", fmt.Errorf("no cluster manages cluster %s: %w", cfg.ClusterName, errors.Join(paused...))
	}
	return nil, "", fmt.Errorf("no cluster manages cluster %s: neither it nor a management cluster holds its Cluster object",
		cfg.ClusterName)
}

// unanswered says of a cluster at which address it was asked, and what was seen.
func unanswered(tools platform.Tools, where, file string, err error) error {
	if c, openErr := connect.Cluster(tools, file); openErr == nil {
		where += " (API " + c.Host() + ")"
	}
	return fmt.Errorf("%s could not be asked whether it has the Cluster object: %w", where, err)
}
