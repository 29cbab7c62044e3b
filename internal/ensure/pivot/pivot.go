// Package pivot moves a cluster's Cluster API objects into the cluster that they describe.
package pivot

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// Result is a cluster that manages itself.
type Result struct {
	Cluster string  // UID of the Cluster object, in the cluster that it describes
	Servers []int64 // at Hetzner; the same before and after
}

// Run moves the objects of Cluster API into the cluster that they describe. clusterctl's move is no transaction, so
// this is one around it: it reads where the objects are, does what comes next, and looks again, until the cluster's own
// controllers have reconciled it. It takes no outputs of other steps because it must be able to resume where their
// records are lost or, partially moved, cannot be verified any more: it finds both clusters by their kubeconfigs in the
// state folder.
func Run(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	observer *situation.Observer, say flow.Say) (Result, error) {
	s, err := connectClusters(ctx, cfg, tools, say)
	if err != nil {
		return Result{}, err
	}
	was, err := records.PivotCopyOf(tools).State(cfg.ClusterName)
	if err != nil {
		return Result{}, err
	}
	for {
		st, err := readBothClusters(ctx, cfg, say, s)
		if err != nil {
			return Result{}, err
		}
		next, err := st.next(cfg.ClusterName)
		if err != nil {
			return Result{}, fmt.Errorf("%w%s", err, whereTheCopyIs(tools))
		}
		switch {
		case was.Phase == records.Settled && st.source == nil:
			// Only the record of it was lost. Whoever paused the cluster since knows why.
			return Result{Cluster: string(st.target.GetUID()), Servers: was.Servers}, nil
		case s.self && next == resumeTarget:
			return Result{}, fmt.Errorf("cluster %s manages itself already, and its Cluster object is paused: unpause it "+
				"(spec.paused) and run again", cfg.ClusterName)
		case next == moveObjects:
			err = moveToTarget(ctx, cfg, tools, sources, observer, say, s, st)
		case next == resumeTarget:
			err = unpauseTarget(ctx, cfg, tools, say, s)
		default:
			return awaitSettled(ctx, cfg, tools, observer, say, s)
		}
		if err != nil {
			return Result{}, err
		}
	}
}

// whereTheCopyIs is the end of an error after which a person may need the copy.
func whereTheCopyIs(tools platform.Tools) string {
	c := records.PivotCopyOf(tools)
	if objects, err := c.All(); err != nil || len(objects) == 0 {
		return ""
	}
	return fmt.Sprintf("; a copy of every object lies in %s", c.Files)
}

// unpauseTarget compares what arrived with the copy, and then lets the cluster's own controllers begin.
func unpauseTarget(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, s clusters) error {
	say("comparing every object in cluster %s with the copy", cfg.ClusterName)
	if err := compareWithCopy(ctx, cfg, tools, say, s); err != nil {
		return err
	}
	say("unpausing cluster %s: from here on it manages itself", cfg.ClusterName)
	return capi.SetPaused(ctx, cfg, s.target, false)
}
