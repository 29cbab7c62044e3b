package orders

import (
	"context"
	"fmt"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Bill is what a run would add to the project.
type Bill struct {
	New     []hetzner.Order `json:"new"`     // to be made
	Notes   []string        `json:"notes"`   // what costs something that has no monthly price
	Monthly hetzner.Price   `json:"monthly"` // of New, together
}

// Extra is what is to be made besides what manifests ask for, and how many servers do not stay.
type Extra struct {
	Firewall, Image, Reservation bool
	Leave                        int
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

// Missing leaves out of the wanted what the cluster has, and asks for the prices.
func Missing(ctx context.Context, cfg config.Config, tools platform.Tools, wanted []hetzner.Order, more Extra) (Bill,
	error) {
	return wait.Promptly(ctx, func(ctx context.Context) (Bill, error) { return Compute(ctx, cfg, tools, wanted, more) })
}

// Compute leaves out of the wanted orders what the cluster has, and asks for the prices.
func Compute(ctx context.Context, cfg config.Config, tools platform.Tools, wanted []hetzner.Order, more Extra) (Bill,
	error) {
	out := Bill{New: []hetzner.Order{}, Notes: []string{}}
	inventory, err := hetzner.TakeInventory(ctx, tools.Hetzner)
	if err != nil {
		return out, err
	}
	if more.Firewall {
		wanted = append(wanted, hetzner.Order{Kind: hetzner.KindFirewall, Count: 1, Name: cfg.ClusterName})
	}
	if more.Image {
		images, notes, err := missingImages(ctx, cfg, tools)
		if err != nil {
			return out, err
		}
		wanted, out.Notes = append(wanted, images...), append(out.Notes, notes...)
	}
	mine := inventory.Of(cfg.ClusterName)
	out.New = hetzner.Missing(wanted, withoutServers(slices.Clone(mine), more.Leave))
	claim := hetzner.ClusterClaim(cfg.ClusterName).Name()
	// A claim to restore the cluster does not reserve its name.
	if more.Reservation &&
		!slices.ContainsFunc(mine, func(r hetzner.Resource) bool { return r.IsReservation() && r.Name == claim }) {
		out.New = append(out.New, hetzner.Order{Kind: hetzner.KindPlacementGroup, Count: 1, Name: claim})
	}
	if out.Monthly, err = hetzner.Quote(ctx, tools.Hetzner, out.New); err != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("the prices could not be asked for: %v", err))
	}
	return out, nil
}

// Wanted are the resources that the manifests ask for, without the images, under the names that a run gives them.
func Wanted(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) ([]hetzner.Order,
	error) {
	v, err := AppliedVariables(ctx, cfg, tools, sources)
	if err != nil {
		return nil, err
	}
	r, err := render.Manifests(cfg, sources, v)
	if err != nil {
		return nil, err
	}
	return Of(r.Now, cfg.PreferredLocation()), nil
}

// missingImages are the snapshots that the step image would make.
func missingImages(ctx context.Context, cfg config.Config, tools platform.Tools) (orders []hetzner.Order,
	notes []string, err error) {
	choice, err := capacity.Choose(ctx, tools.Hetzner, cfg)
	if err != nil {
		return nil, nil, err
	}
	if cfg.ChoosesPlacement() {
		notes = append(notes, "the control plane gets "+choice.Explain())
	}
	missing := func(name, architecture string) error {
		found, err := hetzner.FindImages(ctx, tools.Hetzner, name, architecture)
		same := func(o hetzner.Order) bool { return o.Name == name && o.Type == architecture }
		if err != nil || len(found) > 0 || slices.ContainsFunc(orders, same) {
			return err
		}
		orders = append(orders, hetzner.Order{Kind: hetzner.KindSnapshot, Count: 1, Name: name, Type: architecture})
		notes = append(notes, "image "+name+" is made with a temporary server, by the hour, for some minutes")
		return nil
	}
	for _, architecture := range cfg.Architectures(choice.Architecture) {
		if err := missing(cfg.Image(architecture), architecture); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range cfg.Workers {
		if p = cfg.Pool(p); p.Schematic == "" {
			continue
		}
		kind, err := hetzner.FindServerType(ctx, tools.Hetzner, p.ServerTypes()[0])
		if err != nil {
			return nil, nil, err
		}
		if err := missing(cfg.SchematicImage(p.Schematic, kind.Architecture), kind.Architecture); err != nil {
			return nil, nil, err
		}
	}
	return orders, notes, nil
}

// AppliedVariables are the manifests' with the image and the zone of a run. The load balancer's address is a made-up
// one.
func AppliedVariables(ctx context.Context, cfg config.Config, tools platform.Tools,
	sources render.Sources) (render.Variables, error) {
	choice, err := capacity.Choose(ctx, tools.Hetzner, cfg)
	if err != nil {
		return nil, err
	}
	return render.ManifestVariables(sources, cfg.Image(choice.Architecture), choice.NetworkZone,
		render.MadeUp(cfg)).Placed(choice.Placement()), nil
}
