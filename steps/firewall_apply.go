package steps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Cover is the firewall over the cluster's servers.
type Cover struct {
	Firewall int64 `json:"firewall"`
}

// ErrCutsOff is the refusal to close the door on the manager of the cluster.
var ErrCutsOff = errors.New("the cluster is managed from outside: the control plane provider reaches Talos on the servers' public " +
	"addresses, and this firewall would cut it off. Run pivot first, or let your own address in with FIREWALL_ALLOW=auto " +
	"(or the ranges that the management cluster is seen from)")

// applyFirewall puts the servers behind the firewall, those of today and those to come.
func (b *bootstrapper) applyFirewall(ctx context.Context, say flow.Say, f Firewall) (Cover, error) {
	if err := b.staysReachable(ctx); err != nil {
		return Cover{}, err
	}
	firewall, err := hetzner.FindFirewall(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return Cover{}, err
	}
	if firewall == nil || firewall.ID != f.ID {
		return Cover{}, fmt.Errorf("firewall %d vanished since it was made: run again", f.ID)
	}
	say("applying firewall %s to the servers of cluster %s", firewall.Name, b.cfg.ClusterName)
	if err := hetzner.CoverServers(ctx, b.tools.Hetzner, firewall, b.cfg.ClusterName); err != nil {
		return Cover{}, err
	}
	err = wait{what: "the firewall", within: b.cfg.FirewallTimeout.D()}.until(ctx, say, func(ctx context.Context) (string, error) {
		firewall, err := hetzner.FindFirewall(ctx, b.tools.Hetzner, b.cfg.ClusterName)
		if err != nil {
			return "", err
		}
		if firewall == nil {
			return "", final(fmt.Errorf("firewall %d vanished while it was applied: run again", f.ID))
		}
		open, err := hetzner.Uncovered(ctx, b.tools.Hetzner, firewall, b.cfg.ClusterName)
		if len(open) > 0 {
			return "not covered yet: " + strings.Join(open, ", "), nil
		}
		return "", err
	})
	return Cover{Firewall: f.ID}, err
}

// staysReachable refuses what would lock the cluster's manager out: it reaches the servers over the private network only
// when it runs on them.
func (b *bootstrapper) staysReachable(ctx context.Context) error {
	extra, auto, err := b.cfg.allowed()
	if err != nil || auto || slices.ContainsFunc(extra, beyondPrivate) {
		return err
	}
	workload, err := b.connect(kubeconfigFile)
	if err != nil {
		return err
	}
	cluster, err := get(ctx, workload, clusterKind, b.cfg.ClusterName)
	switch {
	case kube.Absent(err):
		return ErrCutsOff
	case err != nil:
		return fmt.Errorf("find out who manages the cluster: %w", b.silent(ctx, workload, err))
	case truth(cluster, "spec", "paused"):
		return fmt.Errorf("the cluster is being moved (it is paused in itself): run pivot to its end first")
	}
	return nil
}

// beyondPrivate tells whether a range lets in more than the private ranges do. From those nobody comes in on a public address.
func beyondPrivate(p netip.Prefix) bool {
	return !slices.ContainsFunc(privateRanges, func(word string) bool {
		private := netip.MustParsePrefix(word)
		return private.Bits() <= p.Bits() && private.Contains(p.Addr())
	})
}

func (b *bootstrapper) coverStands(ctx context.Context, was Cover) flow.Verdict {
	firewall, err := hetzner.FindFirewall(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if firewall == nil || firewall.ID != was.Firewall {
		return flow.Gone("firewall %d does not exist any more", was.Firewall)
	}
	open, err := hetzner.Uncovered(ctx, b.tools.Hetzner, firewall, b.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if len(open) > 0 {
		return flow.Gone("not behind the firewall: %s", strings.Join(open, ", "))
	}
	return flow.Holds()
}
