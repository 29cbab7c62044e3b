// Package pivot moves a cluster's Cluster API objects into the cluster that they describe.
package pivot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// Result is a cluster that manages itself.
type Result struct {
	Cluster string  // UID of the Cluster object, in the cluster that it describes
	Servers []int64 // at Hetzner; the same before and after
}

// Run moves the objects of Cluster API into the cluster that they describe. It is one transaction: it reads where the
// objects are, does what comes next, and looks again, until the cluster's own controllers have reconciled it. It takes
// no outputs of other steps because it must be able to resume where their records are lost or, partially moved, cannot
// be verified any more: it finds both clusters by their kubeconfigs in the state folder.
func Run(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	observer *situation.Observer, say flow.Say) (Result, error) {
	p, err := connectClusters(ctx, pivot{cfg: cfg, tools: tools, sources: sources, observer: observer, say: say})
	if err != nil {
		return Result{}, err
	}
	was, err := p.copy.State(cfg.ClusterName)
	if err != nil {
		return Result{}, err
	}
	for {
		st, err := p.readBothClusters(ctx)
		if err != nil {
			return Result{}, err
		}
		next, err := st.next(cfg.ClusterName)
		if err != nil {
			return Result{}, fmt.Errorf("%w%s", err, p.whereTheCopyIs())
		}
		switch {
		case was.Phase == records.Settled && st.source == nil:
			// Only the record of it was lost. Whoever paused the cluster since knows why.
			return Result{Cluster: string(st.target.GetUID()), Servers: was.Servers}, nil
		case p.self && next == resumeTarget:
			return Result{}, fmt.Errorf("cluster %s manages itself already, and its Cluster object is paused: unpause it "+
				"(spec.paused) and run again", cfg.ClusterName)
		case next == moveObjects:
			err = p.moveToTarget(ctx, st)
		case next == resumeTarget:
			err = p.unpauseTarget(ctx)
		default:
			return p.awaitSettled(ctx)
		}
		if err != nil {
			return Result{}, err
		}
	}
}

// whereTheCopyIs is the end of an error after which a person may need the copy.
func (p *pivot) whereTheCopyIs() string {
	if objects, err := p.copy.All(); err != nil || len(objects) == 0 {
		return ""
	}
	return fmt.Sprintf("; a copy of every object lies in %s", p.copy.Files)
}

// unpauseTarget compares every object that arrived with the copy, while the target is paused, and then lets the
// cluster's own controllers begin. What can be mended without doubt is: lost labels and annotations, a Secret that
// stayed behind. Everything else stops the pivot.
func (p *pivot) unpauseTarget(ctx context.Context) error {
	p.say("comparing every object in cluster %s with the copy", p.cfg.ClusterName)
	copied, err := p.copy.All()
	if err != nil {
		return err
	}
	if len(copied) == 0 {
		p.say("there is no copy to compare with")
	}
	wrong, err := apply.RepairCopies(ctx, p.say, p.target, copied)
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fmt.Errorf("cluster %s does not hold what was moved: %s%s; the cluster stays paused: "+
			"put right what differs, or, where it is well so, unpause the Cluster object (spec.paused), and run pivot again",
			p.cfg.ClusterName, strings.Join(wrong, "; "), p.whereTheCopyIs())
	}
	p.say("unpausing cluster %s: from here on it manages itself", p.cfg.ClusterName)
	return capi.SetPaused(ctx, p.cfg, p.target, false)
}

// lookingWithin is how long an API server that answers may take to serve every kind that it knows.
const lookingWithin = time.Minute

// unblockedWithin is how long a provider may hold its objects back from a move, which clusterctl, too, waits for.
const unblockedWithin = 2 * time.Minute

// Waits are the waits of a pivot; providers are those of the installation of the providers.
func Waits(c config.Config, providers []flow.Wait) []flow.Wait {
	waits := []flow.Wait{{For: "both clusters to tell what they hold, twice", Within: 2 * lookingWithin}, wait.Nodes(c),
		{For: "the providers to let their objects be moved", Within: unblockedWithin}, wait.Webhooks(c)}
	return append(append(waits, providers...),
		flow.Wait{For: "the cluster's own controllers (NODES_TIMEOUT)", Within: c.NodesTimeout.D()})
}

// Deadline of a pivot. It leaves wait.Overhead beside the longest time that its waits may add up to by default.
func Deadline(c config.Config) time.Duration {
	return 2*c.ProvidersTimeout.D() + 2*c.NodesTimeout.D() + c.LoadBalancerTimeout.D() + 2*lookingWithin +
		unblockedWithin + wait.RetryFor + wait.Overhead
}
