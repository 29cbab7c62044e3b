package status

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/prune"
	"github.com/slipway-k8s/slipway/platform"
)

// Notes are remarks on the cluster that are no step's failure: what the firewall, once it is applied, does not cover,
// and snapshots that keep Cluster API from creating another server. None where the tools cannot ask Hetzner.
func (l *Reader) Notes() ([]string, error) {
	if l.tools.Hetzner == nil {
		return nil, nil
	}
	notes, err := operatorNotes(l.hetzner.ctx, l.cfg, l.tools)
	return notes, l.hetzner.why(err)
}

func operatorNotes(ctx context.Context, cfg config.Config, tools platform.Tools) ([]string, error) {
	uncovered, err := uncoverable(ctx, cfg, tools)
	if err != nil {
		return nil, err
	}
	surplus, err := prune.Plan(ctx, cfg, tools)
	if err != nil {
		return uncovered, err
	}
	notes := uncovered
	for _, s := range surplus {
		if len(s.Delete) > 0 {
			all := append(slices.Clone(s.Delete), s.Keep)
			notes = append(notes,
				(&hetzner.ImageError{Name: s.Name, Architecture: s.Architecture, Found: all,
					Prune: tools.Command("image", "--prune")}).Error())
		}
	}
	return notes, nil
}

// uncoverable says which of the cluster's ports are open to every address although its firewall is applied.
func uncoverable(ctx context.Context, cfg config.Config, tools platform.Tools) ([]string, error) {
	firewall, err := hetzner.FindFirewall(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil || firewall == nil || !firewall.Selects(cfg.ClusterName) {
		return nil, err
	}
	balancers, err := hetzner.LoadBalancers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	var notes []string
	for _, lb := range balancers {
		if !lb.Public || len(lb.Services) == 0 {
			continue
		}
		ports := strings.Trim(fmt.Sprint(lb.Ports()), "[]")
		notes = append(notes, fmt.Sprintf("firewall %s is applied to the servers, but Hetzner's firewalls cannot be "+
			"applied to a load balancer: %s answers every address on %s (docs/firewall.md, \"What it cannot protect\")",
			firewall.Name, situation.DescribeBalancer(lb), strings.Join(strings.Fields(ports), " and ")))
	}
	return notes, nil
}
