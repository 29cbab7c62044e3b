package hetzner

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// OwnerLabel marks what Slipway itself makes at Hetzner; its value is the cluster's name. What CAPH makes carries
// CAPH's label.
const OwnerLabel = "slipway-cluster"

// FirewallRule lets a TCP port in from some sources.
type FirewallRule struct {
	Port        int            `json:"port"`
	Sources     []netip.Prefix `json:"sources"`
	Description string         `json:"description"`
}

// Firewall is the firewall of a cluster.
type Firewall struct{ *hcloud.Firewall }

// FindFirewall finds the cluster's own firewall by its label; nil where there is none. A firewall of the wanted name
// without the label has another owner, and is an error: names are unique in a project.
func FindFirewall(ctx context.Context, c *hcloud.Client, cluster string) (*Firewall, error) {
	found, err := c.Firewall.AllWithOpts(ctx, hcloud.FirewallListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: OwnerLabel + "==" + cluster}})
	if err != nil {
		return nil, fmt.Errorf("look for the firewall of cluster %s: %w", cluster, explain(err))
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%d firewalls carry the label %s=%s, there must be one: delete those that cover no server",
			len(found), OwnerLabel, cluster)
	}
	if len(found) == 1 {
		return &Firewall{found[0]}, nil
	}
	foreign, _, err := c.Firewall.GetByName(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("look for a firewall called %s: %w", cluster, explain(err))
	}
	if foreign != nil {
		return nil, fmt.Errorf("firewall %d is called %s and does not carry the label %s=%s, so it is not touched: "+
			"rename it, or give it the label if Slipway may rule it", foreign.ID, cluster, OwnerLabel, cluster)
	}
	return nil, nil
}

// EnsureFirewall makes the cluster's firewall, or sets its rules where they differ. changed reports whether it had to.
func EnsureFirewall(ctx context.Context, c *hcloud.Client, cluster string, rules []FirewallRule) (f *Firewall,
	changed bool, err error) {
	if f, err = FindFirewall(ctx, c, cluster); err != nil {
		return nil, false, err
	}
	if f == nil {
		made, _, err := c.Firewall.Create(ctx, hcloud.FirewallCreateOpts{
			Name: cluster, Labels: map[string]string{OwnerLabel: cluster}, Rules: wire(rules),
		})
		if err = finish(ctx, c, err, made.Actions...); err != nil {
			return nil, false, fmt.Errorf("create firewall %s: %w", cluster, explain(err))
		}
		return &Firewall{made.Firewall}, true, nil
	}
	if f.Differs(rules) == "" {
		return f, false, nil
	}
	actions, _, err := c.Firewall.SetRules(ctx, f.Firewall, hcloud.FirewallSetRulesOpts{Rules: wire(rules)})
	if err = finish(ctx, c, err, actions...); err != nil {
		return nil, false, fmt.Errorf("set the rules of firewall %s: %w", f.Name, explain(err))
	}
	f.Rules = wire(rules)
	return f, true, nil
}

// Differs says in what a firewall's rules are not the wanted ones; empty if they are. Order and descriptions do not
// count: they let nothing in.
func (f *Firewall) Differs(rules []FirewallRule) string {
	is, want := sentences(f.Rules), sentences(wire(rules))
	var differences []string
	for _, s := range is {
		if !slices.Contains(want, s) {
			differences = append(differences, "it has "+s)
		}
	}
	for _, s := range want {
		if !slices.Contains(is, s) {
			differences = append(differences, "it lacks "+s)
		}
	}
	return strings.Join(differences, "; ")
}

// sentences writes each rule in its canonical form.
func sentences(rules []hcloud.FirewallRule) []string {
	all := make([]string, len(rules))
	for i, r := range rules {
		ips := r.SourceIPs
		if r.Direction == hcloud.FirewallRuleDirectionOut {
			ips = r.DestinationIPs
		}
		nets := make([]string, len(ips))
		for j, n := range ips {
			nets[j] = n.String()
		}
		slices.Sort(nets)
		port := ""
		if r.Port != nil {
			port = " " + *r.Port
		}
		all[i] = fmt.Sprintf("%s %s%s for %s", r.Direction, r.Protocol, port, strings.Join(nets, " "))
	}
	slices.Sort(all)
	return all
}

func wire(rules []FirewallRule) []hcloud.FirewallRule {
	all := make([]hcloud.FirewallRule, len(rules))
	for i, r := range rules {
		port := fmt.Sprint(r.Port)
		all[i] = hcloud.FirewallRule{
			Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocolTCP,
			Port: &port, Description: &r.Description,
		}
		for _, p := range r.Sources {
			all[i].SourceIPs = append(all[i].SourceIPs, net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(),
				p.Addr().BitLen())})
		}
	}
	return all
}

// CoverServers applies the firewall to the servers that CAPH made for a cluster, by their label, so that a server made
// later is born behind it.
func CoverServers(ctx context.Context, c *hcloud.Client, f *Firewall, cluster string) error {
	if f.Selects(cluster) {
		return nil
	}
	actions, _, err := c.Firewall.ApplyResources(ctx, f.Firewall, serversOf(cluster))
	if hcloud.IsError(err, hcloud.ErrorCodeFirewallAlreadyApplied) {
		return nil
	}
	if err = finish(ctx, c, err, actions...); err != nil {
		return fmt.Errorf("apply firewall %s to the servers with %s: %w", f.Name, clusterSelector(cluster), explain(err))
	}
	return nil
}

// serversOf are the servers that CAPH makes for a cluster, by their label.
func serversOf(cluster string) []hcloud.FirewallResource {
	return []hcloud.FirewallResource{{
		Type:          hcloud.FirewallResourceTypeLabelSelector,
		LabelSelector: &hcloud.FirewallResourceLabelSelector{Selector: clusterSelector(cluster)},
	}}
}

// Selects reports whether the firewall is applied to all servers that CAPH makes for a cluster.
func (f *Firewall) Selects(cluster string) bool {
	return slices.ContainsFunc(f.AppliedTo, func(r hcloud.FirewallResource) bool {
		return r.LabelSelector != nil && r.LabelSelector.Selector == clusterSelector(cluster)
	})
}

// Uncovered says which of the cluster's servers are not behind the firewall, as the servers themselves report it; empty
// if all are and new ones will be.
func Uncovered(ctx context.Context, c *hcloud.Client, f *Firewall, cluster string) ([]string, error) {
	if !f.Selects(cluster) {
		return []string{"every server: the firewall is not applied to " + clusterSelector(cluster)}, nil
	}
	servers, err := c.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: ofCluster(cluster)})
	if err != nil {
		return nil, fmt.Errorf("list the servers of cluster %s: %w", cluster, explain(err))
	}
	var names []string
	for _, s := range servers {
		behind := slices.ContainsFunc(s.PublicNet.Firewalls, func(st *hcloud.ServerFirewallStatus) bool {
			return st.Firewall.ID == f.ID && st.Status == hcloud.FirewallStatusApplied
		})
		if !behind {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// UncoverServers takes the firewall off the servers that CAPH made for a cluster, today's and those to come.
func UncoverServers(ctx context.Context, c *hcloud.Client, f *Firewall, cluster string) error {
	if !f.Selects(cluster) {
		return nil
	}
	actions, _, err := c.Firewall.RemoveResources(ctx, f.Firewall, serversOf(cluster))
	if err = finish(ctx, c, err, actions...); err != nil {
		return fmt.Errorf("take firewall %s off the servers with %s: %w", f.Name, clusterSelector(cluster), explain(err))
	}
	return nil
}
