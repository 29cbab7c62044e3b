package destroy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// deleteThroughCAPI deletes the Cluster object and waits until it is gone. Where that leads nowhere it says so and
// leaves the rest to the sweep.
func (d Destroyer) deleteThroughCAPI(ctx context.Context, say flow.Say, source *kube.Cluster,
	removal *hetzner.Removal) error {
	if source == nil {
		say("no management cluster answers: continuing through the Hetzner API")
		return nil
	}
	object, err := connect.FindCluster(ctx, d.cfg, source)
	if err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		say("the objects of the management cluster cannot be read (%v): continuing through the Hetzner API", err)
		return nil
	}
	if object == nil {
		say("the management cluster does not hold cluster %s", d.cfg.ClusterName)
		return nil
	}
	if state, err := records.PivotCopyOf(d.tools).State(d.cfg.ClusterName); err == nil && state.Phase == records.Moving {
		say("a pivot was under way, neither cluster has all objects: continuing through the Hetzner API, with the Cluster " +
			"paused in both")
		if connect.Paused(object) {
			return nil
		}
		return capi.SetPaused(ctx, d.cfg, source, true)
	}
	if err := d.startDeletion(ctx, say, source, object); err != nil {
		if !kube.WebhookDown(err) {
			return err
		}
		say("no controller works in the management cluster (%v): continuing through the Hetzner API", err)
		return nil
	}
	err = d.awaitDeletion(ctx, say, source, removal)
	if errors.Is(err, errStalled) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		say("Cluster API did not finish (%v): continuing through the Hetzner API", err)
		return nil
	}
	return err
}

// startDeletion deletes the Cluster object, and has Cluster API look at it. Its webhooks have a say in both: where
// they do not answer for a while, its error is one that kube.WebhookDown tells.
func (d Destroyer) startDeletion(ctx context.Context, say flow.Say, source *kube.Cluster,
	object *unstructured.Unstructured) error {
	if object.GetDeletionTimestamp() == nil {
		say("deleting %s", kube.Describe(object))
		if err := d.pastWebhooks(ctx, say, object,
			func(ctx context.Context) error { return source.Delete(ctx, object) }); err != nil {
			return fmt.Errorf("delete %s: %w", kube.Describe(object), err)
		}
	}
	if !connect.Paused(object) {
		return nil
	}
	// Only now: what is being deleted is not repaired.
	return d.pastWebhooks(ctx, say, object,
		func(ctx context.Context) error { return capi.SetPaused(ctx, d.cfg, source, false) })
}

// pastWebhooks changes an object, again while the webhooks for it do not answer. An object that is gone needs no
// change.
func (d Destroyer) pastWebhooks(ctx context.Context, say flow.Say, object *unstructured.Unstructured,
	change func(context.Context) error) error {
	var last, down error
	w := wait.Wait{What: "the webhooks for " + kube.Describe(object), Within: d.webhooksWithin, Each: d.webhooksWithin}
	err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
		last = change(ctx)
		switch {
		case kube.Absent(last):
			return "", nil
		case kube.WebhookDown(last):
			down = last
			return "", last
		case last != nil:
			return "", wait.Final(last)
		}
		return "", nil
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, context.DeadlineExceeded) && down != nil:
		return down // the end of the wait cut the last attempt off
	}
	return last
}

func (d Destroyer) awaitDeletion(ctx context.Context, say flow.Say, source *kube.Cluster,
	removal *hetzner.Removal) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := source.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.ClusterKind),
			Options: []client.ListOption{client.InNamespace(d.cfg.Namespace)}},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: capi.OfCluster(d.cfg.Namespace,
			d.cfg.ClusterName)},
	)
	last, moved := "", time.Now()
	left := d.cloudLook(removal)
	w := wait.Wait{What: "Cluster API to take the cluster away", Within: d.cfg.DestroyTimeout.D(), Changes: changes}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		missing, err := d.undeleted(ctx, source, left)
		if err != nil {
			missing = err.Error()
		}
		if missing != last {
			last, moved = missing, time.Now()
		}
		if time.Since(moved) > stallAfter {
			return "", wait.Final(fmt.Errorf("%w: %s", errStalled, missing))
		}
		return missing, err
	})
}

// undeleted says what is still there. Once the HCloudMachines are gone, it is up to Hetzner.
func (d Destroyer) undeleted(ctx context.Context, source *kube.Cluster, left *cloudLook) (string, error) {
	object, err := connect.FindCluster(ctx, d.cfg, source)
	if err != nil || object == nil {
		return "", err
	}
	machines, err := capi.List(ctx, source, d.cfg.Namespace, capi.HCloudMachineKind, d.cfg.ClusterName)
	if err != nil && !kube.Absent(err) {
		return "", err
	}
	if len(machines) > 0 {
		var names []string
		for _, m := range machines {
			names = append(names, m.GetName())
		}
		if err := left.refused(ctx); err != nil {
			return "", err
		}
		return "servers " + strings.Join(names, ", "), nil
	}
	return left.see(ctx)
}

// cloudLook says what a cluster without HCloudMachines still has at Hetzner. It is asked whenever something changes in
// the management cluster, and asks Hetzner at a pace of its own.
type cloudLook struct {
	d       Destroyer
	removal *hetzner.Removal
	pace    wait.Pace
	due     time.Time
	seen    string
}

func (d Destroyer) cloudLook(removal *hetzner.Removal) *cloudLook {
	return &cloudLook{d: d, removal: removal, pace: wait.Pace{First: d.sweepEvery, Longest: d.sweepSlowest}}
}

// see asks Hetzner when it is time to, and repeats until then what it saw last.
func (l *cloudLook) see(ctx context.Context) (string, error) {
	if l.seen != "" && time.Now().Before(l.due) { // the servers' protection is asked for at the same pace
		return l.seen, nil
	}
	seen, err := l.ask(ctx)
	if err == nil && seen != l.seen {
		l.pace.Reset()
	}
	l.due = time.Now().Add(l.pace.Next())
	if err == nil {
		l.seen = seen
	}
	return seen, err
}

// refused ends the wait for servers that Hetzner does not delete. CAPH tries again for ever, and the sweep could not
// delete them either.
func (l *cloudLook) refused(ctx context.Context) error {
	if time.Now().Before(l.due) {
		return nil
	}
	l.due = time.Now().Add(l.pace.Next())
	servers, err := hetzner.Servers(ctx, l.d.tools.Hetzner, l.d.cfg.ClusterName)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range servers {
		if s.Protected {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return wait.Final(fmt.Errorf("Hetzner does not delete server %s: it is protected; take the protection away in "+
		"Hetzner's console and run again",
		strings.Join(names, ", ")))
}

// ask lists what CAPH deletes after the servers. The load balancers that it does not delete are in the way of the
// network, and no controller is left in the cluster to delete those of Services, or to create them again: they are
// deleted here.
func (l *cloudLook) ask(ctx context.Context) (string, error) {
	inventory, err := hetzner.ListResources(ctx, l.d.tools.Hetzner, hetzner.KindServer, hetzner.KindLoadBalancer,
		hetzner.KindNetwork,
		hetzner.KindPlacementGroup)
	if err != nil {
		return "", err
	}
	mine := slices.DeleteFunc(inventory.Of(l.d.cfg.ClusterName), hetzner.Resource.IsReservation)
	var names []string
	for _, r := range mine {
		names = append(names, r.String())
		if (r.OfService() || r.IsEndpointBalancer()) && mine[0].Kind != hetzner.KindServer {
			say, err := l.removal.Remove(ctx, r)
			if err != nil {
				return "", wait.Final(err)
			}
			if say != "" {
				names = append(names, say)
			}
		}
	}
	if len(names) == 0 {
		return "the Cluster object", nil
	}
	return strings.Join(names, ", "), nil
}
