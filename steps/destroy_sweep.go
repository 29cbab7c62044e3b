package steps

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
)

// sweep deletes by the Hetzner API whatever is left, in the order of dependencies, until nothing is but the reservation of
// the cluster's name.
func (o *Operations) sweep(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Demolition) error {
	return o.sweepThose(ctx, say, removal, listed, func(r hetzner.Resource) bool { return !r.IsReservation() })
}

// release gives the cluster's name free. It is the last that is done: whoever reserves it next may make servers of the
// same name, which a sweep would take for what was left of the old ones.
func (o *Operations) release(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Demolition) error {
	return o.sweepThose(ctx, say, removal, listed, hetzner.Resource.IsReservation)
}

func (o *Operations) sweepThose(ctx context.Context, say flow.Say, removal *hetzner.Removal, listed Demolition, those func(hetzner.Resource) bool) error {
	deleted := map[string]bool{}
	w := wait{what: "Hetzner to delete", within: o.b.cfg.DestroyTimeout.D(), every: o.sweepEvery}
	err := w.until(ctx, say, func(ctx context.Context) (string, error) {
		inventory, err := hetzner.TakeInventory(ctx, o.b.tools.Hetzner)
		if err != nil {
			if errors.Is(err, hetzner.ErrToken) {
				err = final(err)
			}
			return "", err
		}
		take := slices.DeleteFunc(o.divide(inventory, listed.opts).Take, func(r hetzner.Resource) bool { return !those(r) || !listed.allows(r) })
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

// allows tells whether a resource may be deleted though nobody saw it in the list: a volume may not, it holds data. It carries the
// label by then, so that the next list has it.
func (d Demolition) allows(r hetzner.Resource) bool {
	return r.Kind != hetzner.KindVolume || slices.ContainsFunc(d.Take, func(l hetzner.Resource) bool { return l.Kind == r.Kind && l.ID == r.ID })
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
			return "", final(errors.Join(refused...))
		}
		if kind == hetzner.KindServer && len(lines) > 0 {
			break // nearly everything else hangs on servers
		}
	}
	return strings.Join(lines, "; "), nil
}
