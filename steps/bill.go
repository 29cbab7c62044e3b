package steps

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/orders"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Bill is what a run would add to the project.
type Bill struct {
	New     []hetzner.Order `json:"new"`     // to be made
	Notes   []string        `json:"notes"`   // what costs something that has no monthly price
	Monthly hetzner.Price   `json:"monthly"` // of New, together
}

// Bill tells what a run that would do this, with these consequences, makes at Hetzner, and what that costs a month. It counts what
// the manifests ask for and leaves out what the cluster has, and keeps; it changes nothing. Servers that take the place of others
// are not in it: see Consequence.
func (p *Plan) Bill(ctx context.Context, foreseen []flow.Prediction, consequences []Consequence) (Bill, error) {
	b := Bill{New: []hetzner.Order{}, Notes: []string{}}
	would := map[string]bool{}
	for _, f := range foreseen {
		would[f.Name] = f.Action == flow.ActionRun || f.Action == flow.ActionMayRun
	}
	if !would[p.Cluster.Name()] && !would[p.ControlPlane.Name()] && !would[p.Image.Name()] && !would[p.Firewall.Name()] {
		return b, nil
	}
	more := besides{firewall: would[p.Firewall.Name()], image: would[p.Image.Name()], reservation: would[p.Reservation.Name()], leave: leaving(consequences)}
	return Promptly(ctx, func(ctx context.Context) (Bill, error) {
		var wanted []hetzner.Order
		if would[p.Cluster.Name()] || would[p.ControlPlane.Name()] {
			var err error
			if wanted, err = wantedOrders(ctx, p.b.cfg, p.b.tools, p.b.sources); err != nil {
				return b, err
			}
		}
		return reckon(ctx, p.b.cfg, p.b.tools, wanted, more)
	})
}

// besides is what is to be made besides what manifests ask for, and how many servers do not stay.
type besides struct {
	firewall, image, reservation bool
	leave                        int
}

// leaving is how many servers are taken away without another in their place.
func leaving(consequences []Consequence) (n int) {
	for _, c := range consequences {
		if c.Effect == EffectRemoves || c.Effect == EffectDeletes {
			n += c.Count
		}
	}
	return n
}

// withoutServers leaves out a number of servers.
func withoutServers(have []hetzner.Resource, n int) []hetzner.Resource {
	return slices.DeleteFunc(have, func(r hetzner.Resource) bool {
		if r.Kind != hetzner.KindServer || n == 0 {
			return false
		}
		n--
		return true
	})
}

// bill leaves out of the wanted what the cluster has, and asks for the prices.
func bill(ctx context.Context, cfg config.Config, tools platform.Tools, wanted []hetzner.Order, more besides) (Bill, error) {
	return Promptly(ctx, func(ctx context.Context) (Bill, error) { return reckon(ctx, cfg, tools, wanted, more) })
}

func reckon(ctx context.Context, cfg config.Config, tools platform.Tools, wanted []hetzner.Order, more besides) (Bill, error) {
	out := Bill{New: []hetzner.Order{}, Notes: []string{}}
	inventory, err := hetzner.TakeInventory(ctx, tools.Hetzner)
	if err != nil {
		return out, err
	}
	if more.firewall {
		wanted = append(wanted, hetzner.Order{Kind: hetzner.KindFirewall, Count: 1, Name: cfg.ClusterName})
	}
	if more.image {
		images, notes, err := missingImages(ctx, cfg, tools)
		if err != nil {
			return out, err
		}
		wanted, out.Notes = append(wanted, images...), append(out.Notes, notes...)
	}
	mine := inventory.Of(cfg.ClusterName)
	out.New = hetzner.Missing(wanted, withoutServers(slices.Clone(mine), more.leave))
	claim := hetzner.ClusterClaim(cfg.ClusterName).Name()
	// That somebody restores the cluster does not reserve its name.
	if more.reservation && !slices.ContainsFunc(mine, func(r hetzner.Resource) bool { return r.IsReservation() && r.Name == claim }) {
		out.New = append(out.New, hetzner.Order{Kind: hetzner.KindPlacementGroup, Count: 1, Name: claim})
	}
	if out.Monthly, err = hetzner.Quote(ctx, tools.Hetzner, out.New); err != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("the prices could not be asked for: %v", err))
	}
	return out, nil
}

// wantedOrders are the resources that the manifests ask for, without the images, under the names that a run gives them.
func wantedOrders(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) ([]hetzner.Order, error) {
	v, err := appliedVariables(ctx, cfg, tools, sources)
	if err != nil {
		return nil, err
	}
	r, err := render.Manifests(cfg, sources, v)
	if err != nil {
		return nil, err
	}
	return orders.Of(r.Now, cfg.Location), nil
}

// missingImages are the snapshots that the step image would make.
func missingImages(ctx context.Context, cfg config.Config, tools platform.Tools) (orders []hetzner.Order, notes []string, err error) {
	offer, err := hetzner.FindOffer(ctx, tools.Hetzner, cfg.Location, cfg.ServerType, cfg.LoadBalancerType)
	if err != nil {
		return nil, nil, err
	}
	for _, architecture := range cfg.Architectures(offer.Architecture) {
		name := cfg.Image(architecture)
		found, err := hetzner.FindImages(ctx, tools.Hetzner, name, architecture)
		if err != nil {
			return nil, nil, err
		}
		if len(found) == 0 {
			orders = append(orders, hetzner.Order{Kind: hetzner.KindSnapshot, Count: 1, Name: name, Type: architecture})
			notes = append(notes, "image "+name+" is made with a temporary server, by the hour, for some minutes")
		}
	}
	return orders, notes, nil
}
