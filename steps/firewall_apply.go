package steps

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// FirewallAttachment is the firewall over the cluster's servers.
type FirewallAttachment struct {
	Firewall int64 `json:"firewall"`
}

// ErrCutsOff is the refusal to cut off the cluster that manages this one.
var ErrCutsOff = errors.New("the cluster is managed from outside: the control plane provider reaches Talos on the " +
	"servers' public " +
	"addresses, and this firewall would cut it off. Run pivot first, or let your own address in with FIREWALL_ALLOW=auto " +
	"(or the ranges that the management cluster is seen from)")

// FirewallApply adds the step firewall-apply to a graph: the firewall is applied to the cluster's servers, by label.
func (s *Set) FirewallApply(g *flow.Graph, firewall *flow.Step[Firewall]) *flow.Step[FirewallAttachment] {
	return flow.Add(g, flow.Task[FirewallAttachment]{
		Name:     "firewall-apply",
		Doc:      "every server, also one made later, is behind the firewall (the load balancer's public ports cannot be)",
		Run:      flow.With1(s.runFirewallApply, firewall),
		Verify:   s.verifyFirewallApply,
		Deadline: s.cfg.FirewallTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{{For: "the firewall (FIREWALL_TIMEOUT)", Within: s.cfg.FirewallTimeout.D()}},
	})
}

// runFirewallApply puts the servers behind the firewall, those of today and those to come.
func (s *Set) runFirewallApply(ctx context.Context, say flow.Say, f Firewall) (FirewallAttachment, error) {
	if err := s.staysReachable(ctx); err != nil {
		return FirewallAttachment{}, err
	}
	firewall, err := hetzner.FindFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return FirewallAttachment{}, err
	}
	if firewall == nil || firewall.ID != f.ID {
		return FirewallAttachment{}, fmt.Errorf("firewall %d vanished since it was made: run again", f.ID)
	}
	say("applying firewall %s to the servers of cluster %s", firewall.Name, s.cfg.ClusterName)
	if err := hetzner.CoverServers(ctx, s.tools.Hetzner, firewall, s.cfg.ClusterName); err != nil {
		return FirewallAttachment{}, err
	}
	err = wait.Wait{What: "the firewall", Within: s.cfg.FirewallTimeout.D()}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			firewall, err := hetzner.FindFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName)
			if err != nil {
				return "", err
			}
			if firewall == nil {
				return "", wait.Final(fmt.Errorf("firewall %d vanished while it was applied: run again", f.ID))
			}
			open, err := hetzner.Uncovered(ctx, s.tools.Hetzner, firewall, s.cfg.ClusterName)
			if len(open) > 0 {
				return "not covered yet: " + strings.Join(open, ", "), nil
			}
			return "", err
		})
	return FirewallAttachment{Firewall: f.ID}, err
}

// staysReachable refuses what would lock the cluster's manager out: it reaches the servers over the private network
// only when it runs on them.
func (s *Set) staysReachable(ctx context.Context) error {
	extra, auto, err := s.cfg.Allowed()
	if err != nil || auto || slices.ContainsFunc(extra, beyondPrivate) {
		return err
	}
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := capi.Get(ctx, workload, s.cfg.Namespace, capi.ClusterKind, s.cfg.ClusterName)
	switch {
	case kube.Absent(err):
		return ErrCutsOff
	case err != nil:
		return fmt.Errorf("find out who manages the cluster: %w",
			situation.ExplainSilence(ctx, s.cfg, s.tools, s.sources, workload, err))
	case capi.Truth(cluster, "spec", "paused"):
		return fmt.Errorf("the cluster is being moved (it is paused in itself): run pivot to its end first")
	}
	return nil
}

// beyondPrivate tells whether a range lets in more than the private ranges do. No traffic from those reaches a public
// address.
func beyondPrivate(p netip.Prefix) bool {
	return !slices.ContainsFunc(privateRanges, func(word string) bool {
		private := netip.MustParsePrefix(word)
		return private.Bits() <= p.Bits() && private.Contains(p.Addr())
	})
}

func (s *Set) verifyFirewallApply(ctx context.Context, was FirewallAttachment) flow.Verdict {
	firewall, err := hetzner.FindFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if firewall == nil || firewall.ID != was.Firewall {
		return flow.Gone("firewall %d does not exist any more", was.Firewall)
	}
	open, err := hetzner.Uncovered(ctx, s.tools.Hetzner, firewall, s.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if len(open) > 0 {
		return flow.Gone("not behind the firewall: %s", strings.Join(open, ", "))
	}
	return flow.Holds()
}
