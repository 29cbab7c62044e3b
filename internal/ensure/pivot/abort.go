package pivot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// ErrNothingToAbort means that no pivot was begun.
var ErrNothingToAbort = errors.New("there is nothing to abort: no pivot was begun")

// Abort puts a pivot that has not deleted anything yet back: the copies leave the target, and the management
// cluster's controllers reconcile again. The caller holds the journal's lock.
func Abort(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) error {
	p, err := connectClusters(ctx, pivot{cfg: cfg, tools: tools, say: say})
	if err != nil {
		return err
	}
	st, err := p.readBothClusters(ctx)
	if err != nil {
		return err
	}
	source, err := p.abortable(ctx, st)
	if err != nil {
		return err
	}
	// In this order, so that never both are unpaused: the copies go while the target is still paused.
	if err := p.withdraw(ctx, source); err != nil {
		return err
	}
	if connect.Paused(st.source) {
		say("unpausing the management cluster's controllers")
		if err := capi.SetPaused(ctx, cfg, p.source, false); err != nil {
			return err
		}
	}
	say("removing the copy in %s", p.copy.Files)
	return p.copy.Forget()
}

// abortable gives what the source holds, if all of it is still there.
func (p *pivot) abortable(ctx context.Context, st location) (capi.Inventory, error) {
	none := capi.Inventory{}
	tooLate := func(why string) error {
		return fmt.Errorf("too late to abort: %s; run pivot to bring it to its end", why)
	}
	if st.source == nil {
		return none, tooLate("the management cluster does not hold the Cluster object any more")
	}
	if len(st.marked) > 0 {
		return none, tooLate(fmt.Sprintf("the move has begun to delete in the management cluster (%s)", st.marked[0]))
	}
	if st.target != nil && !connect.Paused(st.target) {
		return none, fmt.Errorf("the Cluster object in cluster %s is not paused, so its controllers may be at work there: "+
			"pause it (spec.paused: true) first", p.cfg.ClusterName)
	}
	inv, err := capi.ReadInventory(ctx, p.source, p.cfg.Namespace)
	if err != nil {
		return none, fmt.Errorf("management cluster: %w", err)
	}
	copied, err := p.copy.All()
	if err != nil {
		return none, err
	}
	if st.target == nil && len(copied) == 0 && !connect.Paused(st.source) {
		return none, ErrNothingToAbort
	}
	arrived, err := capi.ReadInventory(ctx, p.target, p.cfg.Namespace)
	if err != nil {
		return none, fmt.Errorf("cluster %s: %w", p.cfg.ClusterName, err)
	}
	// Where the copy was lost, what the target has tells what the source had.
	for _, o := range arrived.All() {
		copied = append(copied, &o)
	}
	var missing []string
	for _, o := range copied {
		key := capi.ObjectKeyOf(o)
		if !slices.ContainsFunc(inv.All(), func(is unstructured.Unstructured) bool { return capi.ObjectKeyOf(&is) == key }) {
			missing = append(missing, key.String())
		}
	}
	missing = slices.Compact(slices.Sorted(slices.Values(missing)))
	// A cluster that was never paused keeps changing, and an object of it may be deleted for other reasons.
	if len(missing) > 0 && connect.Paused(st.source) {
		return none, tooLate("the management cluster does not hold " + strings.Join(missing, ", ") + " any more")
	}
	return inv, nil
}

// withdraw deletes the copies from the target. Without their finalizers, so that no controller there deletes the server
// of one; the Cluster object last, because its pause keeps the controllers there from acting.
func (p *pivot) withdraw(ctx context.Context, source capi.Inventory) error {
	var copies, clusters []*unstructured.Unstructured
	for _, o := range source.All() {
		is, err := apply.ReadCopied(ctx, p.target, &o)
		switch {
		case err != nil:
			return err
		case is == nil:
		case capi.ObjectKeyOf(is).Kind == capi.ClusterKind.GroupKind():
			clusters = append(clusters, is)
		default:
			copies = append(copies, is)
		}
	}
	for _, o := range copies {
		if err := apply.DropFinalizers(ctx, p.target, o); err != nil {
			return err
		}
	}
	for i, o := range append(copies, clusters...) {
		p.say("removing the copy of %s from cluster %s (%d of %d)", capi.ObjectKeyOf(o), p.cfg.ClusterName, i+1, len(copies)+
			len(clusters))
		if err := apply.RemoveCopy(ctx, p.target, o); err != nil {
			return err
		}
	}
	return nil
}
