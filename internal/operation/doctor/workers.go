package doctor

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/internal/cluster/pools"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

const workerPoolsCheck = "worker-pools"

// workerPools examines what each worker pool asks of Hetzner: a server type in stock in one of its locations, an image
// for it, and names that are free. The first problem is the result.
func (d *Doctor) workerPools(ctx context.Context) Finding {
	controlPlane, err := capacity.Choose(ctx, d.tools.Hetzner, d.cfg)
	if err != nil {
		return unknown("see the check server-type", "in which network zone workers can be is not known: %v", err)
	}
	images := pools.ConfiguredImages(d.cfg, controlPlane.Architecture)
	var told []string
	for _, p := range d.cfg.Workers {
		p = d.cfg.Pool(p)
		text, problem := d.pool(ctx, p, controlPlane.NetworkZone, images)
		if problem != nil {
			return *problem
		}
		told = append(told, text)
	}
	if taken := d.poolNames(ctx); taken != nil {
		return *taken
	}
	return ok("%s", strings.Join(told, "; "))
}

// pool says which servers a pool gets, or what is wrong.
func (d *Doctor) pool(ctx context.Context, p config.WorkerPool, zone string, images pools.Image) (string, *Finding) {
	wrong := func(f Finding) (string, *Finding) { return "", &f }
	choice, err := capacity.ChoosePool(ctx, d.tools.Hetzner, d.cfg, p, zone)
	switch {
	case errors.As(err, new(*hetzner.Unknown)):
		return wrong(failed("choose another serverType or location of the pool", "%v", err))
	case errors.As(err, new(*capacity.OutOfStockError)):
		return wrong(failed("add another serverType or location to the pool, or wait", "%v", err))
	case err != nil:
		return wrong(unheard(err))
	}
	kind, err := hetzner.FindServerType(ctx, d.tools.Hetzner, choice.ServerType)
	if err != nil {
		return wrong(unheard(err))
	}
	if _, problem := onSale(kind, choice.Locations); problem != "" {
		return wrong(failed("add another serverType or location to the pool, or wait", "worker pool %s: %s", p.Name, problem))
	}
	name := p.Image
	if name == "" {
		name = images(p.Schematic, choice.Architecture)
	}
	if name == "" {
		return wrong(failed("set IMAGE_ARCHITECTURES="+choice.Architecture+", or the pool's image", "the servers of worker "+
			"pool %s, of type %s, are %s, and a run makes no image for those", p.Name, choice.ServerType, choice.Architecture))
	}
	if p.Image != "" { // the others are those of the check image
		_, err := hetzner.FindImage(ctx, d.tools.Hetzner, name, choice.Architecture, d.tools.Command("image", "--prune"))
		missing, is := errors.AsType[*hetzner.ImageError](err)
		switch {
		case is:
			missing.Own = true
			return wrong(failed("give the pool's snapshot this label, or choose another image of the pool", "worker pool %s: %v", p.Name,
				missing))
		case err != nil:
			return wrong(unheard(err))
		}
	}
	return fmt.Sprintf("pool %s: %s servers of type %s in %s from image %s", p.Name, p.Size(), choice.ServerType,
		choice.Locations[0], name), nil
}

// poolNames finds placement groups and servers that are not the cluster's and have names that the pools need.
func (d *Doctor) poolNames(ctx context.Context) *Finding {
	cluster := d.cfg.ClusterName
	var groups, pattern []string
	for _, g := range render.PlacementGroups(d.cfg) {
		groups = append(groups, cluster+"-"+g)
	}
	for _, p := range d.cfg.Workers {
		for _, g := range p.Groups() {
			pattern = append(pattern, regexp.QuoteMeta(cluster+"-"+g.Name))
		}
	}
	names := hetzner.Names{PlacementGroups: groups,
		// As Cluster API makes them up: <MachineDeployment>-<hash>-<random>.
		Servers: regexp.MustCompile(`^(` + strings.Join(pattern, "|") + `)-[0-9a-z]{5,10}-[0-9a-z]{5}$`)}
	taken, err := hetzner.Taken(ctx, d.tools.Hetzner, cluster, names)
	var f Finding
	switch {
	case err != nil:
		f = unheard(err)
	case len(taken) > 0:
		f = failed("choose another name of the pool, or rename what has it", "these are not the cluster's and have names that "+
			"its worker pools need: %s", strings.Join(taken, ", "))
	default:
		return nil
	}
	return &f
}
