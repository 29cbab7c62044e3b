package steps

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Firewall is the cluster's firewall at Hetzner.
type Firewall struct {
	ID    int64          `json:"id"`
	Rules []FirewallRule `json:"rules"`
}

// FirewallRule lets a TCP port in from some sources.
type FirewallRule struct {
	Port        int            `json:"port"`
	Sources     []netip.Prefix `json:"sources"`
	Description string         `json:"description"`
}

// privateRanges may reach the Kubernetes and the Talos API: the guide's, for a VPN into the private network.
var privateRanges = []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"}

// Firewall adds the step firewall to a graph: the cluster's firewall exists at Hetzner, with the rules of the
// configuration.
func (s *Set) Firewall(g *flow.Graph) *flow.Step[Firewall] {
	return flow.Add(g, flow.Task[Firewall]{
		Name:     "firewall",
		Doc:      "a Hetzner firewall that lets private addresses, and those of FIREWALL_ALLOW, in on 6443 and 50000",
		Run:      flow.Do(s.runFirewall),
		Spec:     map[string]string{"clusterName": s.cfg.ClusterName, "firewallAllow": s.cfg.FirewallAllow},
		Verify:   s.verifyFirewall,
		Deadline: wait.Overhead,
	})
}

// firewallRules are the rules for today's configuration. Where the operator's own address is to be let in, it is asked
// for each time: it changes with the network that the operator sits in.
func (s *Set) firewallRules(ctx context.Context) ([]hetzner.FirewallRule, error) {
	extra, auto, err := s.cfg.Allowed()
	if err != nil {
		return nil, fmt.Errorf("firewallAllow: %w", err)
	}
	if auto {
		own, err := s.tools.OwnAddress(ctx)
		if err != nil {
			return nil, fmt.Errorf("find out this machine's address towards the internet: %w; name it in FIREWALL_ALLOW in "+
				"place of auto", err)
		}
		extra = append(extra, netip.PrefixFrom(own, own.BitLen()))
	}
	var sources []netip.Prefix
	for _, r := range privateRanges {
		sources = append(sources, netip.MustParsePrefix(r))
	}
	for _, p := range extra {
		if !slices.Contains(sources, p) {
			sources = append(sources, p)
		}
	}
	return []hetzner.FirewallRule{
		{Port: 6443, Sources: sources, Description: "Kubernetes API"},
		{Port: 50000, Sources: sources, Description: "Talos API"},
	}, nil
}

// runFirewall creates the firewall or corrects its rules. Where it covers the servers already, new rules are in force
// at once.
func (s *Set) runFirewall(ctx context.Context, say flow.Say) (Firewall, error) {
	rules, err := s.firewallRules(ctx)
	if err != nil {
		return Firewall{}, err
	}
	say("looking for firewall %s", s.cfg.ClusterName)
	was, err := hetzner.FindFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return Firewall{}, err
	}
	if was != nil && was.Selects(s.cfg.ClusterName) && was.Differs(rules) != "" {
		if err := s.staysReachable(ctx); err != nil {
			return Firewall{}, fmt.Errorf("the rules of firewall %s, which covers the servers, are left as they are: %w",
				was.Name, err)
		}
	}
	f, changed, err := hetzner.EnsureFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName, rules)
	if err != nil {
		return Firewall{}, err
	}
	if changed {
		say("firewall %s lets %s in on 6443 and 50000, and nothing else", f.Name, ranges(rules[0].Sources))
	}
	out := Firewall{ID: f.ID}
	for _, r := range rules {
		out.Rules = append(out.Rules, FirewallRule(r))
	}
	return out, nil
}

func ranges(all []netip.Prefix) string {
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = p.String()
	}
	return strings.Join(words, ", ")
}

func (s *Set) verifyFirewall(ctx context.Context, was Firewall) flow.Verdict {
	f, err := hetzner.FindFirewall(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if f == nil || f.ID != was.ID {
		return flow.Gone("firewall %d does not exist any more", was.ID)
	}
	rules, err := s.firewallRules(ctx)
	if err != nil {
		return flow.Unknown(err)
	}
	if d := f.Differs(rules); d != "" {
		return flow.Gone("its rules were changed: %s", d)
	}
	return flow.Holds()
}
