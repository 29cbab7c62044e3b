package capacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// ChoosePool chooses the server type and the location of a worker pool as Choose does those of the control plane. zone
// is the network zone of the cluster, whose network the workers join.
func ChoosePool(ctx context.Context, c *hcloud.Client, cfg config.Config, p config.WorkerPool, zone string) (Choice, error) {
	p = cfg.Pool(p)
	as := cfg
	as.ServerType, as.Location, as.Spread = p.ServerType, p.Location, config.SpreadHost
	fail := func(err error) (Choice, error) { return Choice{}, fmt.Errorf("worker pool %s: %w", p.Name, err) }
	m, err := askMarket(ctx, c, as)
	if err != nil {
		return fail(err)
	}
	for _, l := range m.locations {
		if zone != "" && m.zones[l] != zone {
			return fail(&hetzner.Unknown{What: "location", Name: l, Why: fmt.Sprintf("is in network zone %s, and the cluster "+
				"in %s: a network does not leave its zone", m.zones[l], zone)})
		}
	}
	if len(m.types) == 1 && len(m.locations) == 1 {
		return m.choice(m.types[0], m.locations, nil), nil
	}
	has, err := existing(ctx, c, cfg, func(s hetzner.Server) bool { return ofPool(s, cfg.ClusterName, p) })
	if err != nil {
		return fail(err)
	}
	has.locations = has.locations[:min(1, len(has.locations))] // a pool is in one
	choice, err := m.choose(has)
	if none, out := errors.AsType[*OutOfStockError](err); out {
		none.Pool = true
	}
	if err != nil {
		return fail(err)
	}
	return choice, nil
}

// ofPool tells whether a server is of a worker pool: Cluster API calls them <MachineDeployment>-<hash>-<random>.
func ofPool(s hetzner.Server, cluster string, p config.WorkerPool) bool {
	return s.Worker && slices.ContainsFunc(p.Groups(), func(g config.PoolGroup) bool {
		rest, found := strings.CutPrefix(s.Name, cluster+"-"+g.Name+"-")
		return found && strings.Count(rest, "-") == 1 // not of the pool general-x
	})
}
