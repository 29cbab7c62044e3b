package destroy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// sweep deletes by the Hetzner API whatever is left, in the order of dependencies, until nothing is but the control
// plane's address and the reservation of the cluster's name.
func (d Destroyer) sweep(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Deletion) error {
	return d.sweepThose(ctx, say, removal, listed, func(r hetzner.Resource) bool {
		return !r.IsReservation() && !r.IsEndpointAddress()
	})
}

func (d Destroyer) sweepThose(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Deletion,
	those func(hetzner.Resource) bool) error {
	deleted, known := map[string]bool{}, ""
	var kinds []hetzner.Kind // that are listed; none: all
	pace := &wait.Pace{First: d.sweepEvery, Longest: d.sweepSlowest}
	w := wait.Wait{What: "Hetzner to delete", Within: d.cfg.DestroyTimeout.D(), Pace: pace}
	err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
		take, err := d.leftOf(ctx, listed, those, kinds)
		if err == nil && len(take) == 0 && len(kinds) > 0 {
			kinds = nil // what was waited for is gone: what else is there?
			take, err = d.leftOf(ctx, listed, those, kinds)
		}
		if err != nil {
			if errors.Is(err, hetzner.ErrToken) {
				err = wait.Final(err)
			}
			return "", err
		}
		kinds = waitedFor(take)
		if now := fmt.Sprint(take); now != known {
			known = now
			pace.Reset()
		}
		if err := removal.Refresh(ctx); err != nil {
			return "", err
		}
		for _, r := range take {
			deleted[r.String()] = true
		}
		return sweepOnce(ctx, removal, take)
	})
	if err == nil && len(deleted) > 0 {
		say("%d resources deleted", len(deleted))
	} else if err == nil {
		say("nothing is left")
	}
	return err
}

// leftOf lists what is to be deleted of some kinds; none given: of all.
func (d Destroyer) leftOf(
	ctx context.Context, listed Deletion, those func(hetzner.Resource) bool, kinds []hetzner.Kind,
) ([]hetzner.Resource, error) {
	inventory, err := hetzner.ListResources(ctx, d.tools.Hetzner, kinds...)
	if err != nil {
		return nil, err
	}
	skip := func(r hetzner.Resource) bool { return !those(r) || !listed.allows(r) }
	return slices.DeleteFunc(d.divide(inventory, listed.opts).Take, skip), nil
}

// waitedFor are the kinds that the next look lists: servers alone, as long as there are any, because sweepOnce
// deletes nothing else then.
func waitedFor(take []hetzner.Resource) []hetzner.Kind {
	var kinds []hetzner.Kind
	for _, r := range take {
		if r.Kind == hetzner.KindServer {
			return []hetzner.Kind{r.Kind}
		}
		if !slices.Contains(kinds, r.Kind) {
			kinds = append(kinds, r.Kind)
		}
	}
	return kinds
}

// allows reports whether a resource may be deleted that was not in the list that the operator saw: a volume may not, it
// holds data. It carries the label by then, so that the next list has it.
func (d Deletion) allows(r hetzner.Resource) bool {
	return r.Kind != hetzner.KindVolume ||
		slices.ContainsFunc(d.Take, func(l hetzner.Resource) bool { return l.Kind == r.Kind && l.ID == r.ID })
}

// sweepOnce asks for the deletion of everything that does not wait for something else, and says what is on its way or
// cannot go yet. One that is refused for good stops what comes after it, but not its own kind.
func sweepOnce(ctx context.Context, removal *hetzner.Removal, take []hetzner.Resource) (string, error) {
	var lines []string
	for _, kind := range hetzner.Kinds() {
		var refused []error
		for _, r := range take {
			if r.Kind != kind {
				continue
			}
			pending, err := removal.Remove(ctx, r)
			switch {
			case err != nil:
				refused = append(refused, err)
			case pending != "":
				lines = append(lines, pending)
			default:
				lines = append(lines, r.String())
			}
		}
		if len(refused) > 0 {
			return "", wait.Final(errors.Join(refused...))
		}
		if kind == hetzner.KindServer && len(lines) > 0 {
			break // nearly everything else depends on servers
		}
	}
	return strings.Join(lines, "; "), nil
}
