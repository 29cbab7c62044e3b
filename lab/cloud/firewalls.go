package cloud

import (
	"net/netip"
	"regexp"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindFirewall = "firewall"

// rulesMax and firewallsMax are limits of the API (docs.hetzner.com/cloud/firewalls): rules of one
// firewall, and firewalls on one server.
const (
	rulesMax     = 50
	firewallsMax = 5
)

// firewall is stored, applied and reported; it filters no packet.
type firewall struct {
	meta
	Rules     []schema.FirewallRule `json:"rules,omitempty"`
	Servers   []int64               `json:"servers,omitempty"`
	Selectors []string              `json:"selectors,omitempty"`
}

func (c *Cloud) firewalls() resource[*firewall] {
	return resource[*firewall]{
		kind: kindFirewall, path: "firewalls", all: c.state.Firewalls,
		view:   func(one *firewall) any { return c.viewFirewall(one) },
		update: noUpdate[*firewall],
		remove: func(q *call, one *firewall) (any, error) {
			if len(one.Servers)+len(one.Selectors) > 0 {
				return nil, refuse("resource_in_use", "the firewall is still applied")
			}
			delete(q.state.Firewalls, one.ID)
			return nil, nil
		},
		commands: map[string]func(*call, *firewall) (any, error){
			"set_rules":             with(setRules),
			"apply_to_resources":    with(applyFirewall),
			"remove_from_resources": with(removeFirewall),
		},
	}
}

// selected are the servers that a label selector matches now. They are not stored, so that firewalls and load balancers
// include servers that are created later.
func (c *Cloud) selected(text string) []*server {
	wanted, err := parseSelector(text)
	if err != nil {
		return nil // refused when it was created
	}
	var found []*server
	for _, one := range ordered(c.state.Servers) {
		if wanted.matches(one.Labels) {
			found = append(found, one)
		}
	}
	return found
}

// covers says whether the firewall is applied to the server, directly or by a selector.
func (c *Cloud) covers(wall *firewall, one *server) bool {
	return slices.Contains(wall.Servers, one.ID) || slices.ContainsFunc(wall.Selectors, func(text string) bool {
		return slices.Contains(c.selected(text), one)
	})
}

func (c *Cloud) viewFirewall(one *firewall) schema.Firewall {
	shown := schema.Firewall{
		ID: one.ID, Name: one.Name, Labels: one.labels(), Created: one.Created,
		Rules: orEmpty(one.Rules), AppliedTo: []schema.FirewallResource{},
	}
	for _, id := range one.Servers {
		shown.AppliedTo = append(shown.AppliedTo, ofServer(id))
	}
	for _, text := range one.Selectors {
		applied := schema.FirewallResource{
			Type:          "label_selector",
			LabelSelector: &schema.FirewallResourceLabelSelector{Selector: text},
		}
		for _, covered := range c.selected(text) {
			applied.AppliedToResources = append(applied.AppliedToResources, ofServer(covered.ID))
		}
		shown.AppliedTo = append(shown.AppliedTo, applied)
	}
	return shown
}

func ofServer(id int64) schema.FirewallResource {
	return schema.FirewallResource{Type: "server", Server: &schema.FirewallResourceServer{ID: id}}
}

func (c *Cloud) createFirewall(q *call, wanted schema.FirewallCreateRequest) (any, error) {
	rules, err := parseRules(wanted.Rules)
	if err != nil {
		return nil, err
	}
	if err := c.checkFirewallResources(wanted.ApplyTo); err != nil {
		return nil, err
	}
	about, err := c.firewalls().begin(q, wanted.Name, wanted.Labels)
	if err != nil {
		return nil, err
	}
	made := &firewall{meta: about, Rules: rules}
	c.state.Firewalls[made.ID] = made
	actions := []*action{q.begin("create_firewall", on(kindFirewall, made.ID))}
	if len(rules) > 0 {
		actions = append(actions, q.begin("set_firewall_rules", on(kindFirewall, made.ID)))
	}
	for _, to := range wanted.ApplyTo {
		actions = append(actions, q.apply(made, to)...)
	}
	return map[string]any{"firewall": c.viewFirewall(made), "actions": views(actions)}, nil
}

func setRules(q *call, one *firewall, wanted schema.FirewallActionSetRulesRequest) (any, error) {
	rules, err := parseRules(wanted.Rules)
	if err != nil {
		return nil, err
	}
	one.Rules = rules
	actions := []*action{q.begin("set_firewall_rules", on(kindFirewall, one.ID))}
	for _, covered := range ordered(q.state.Servers) {
		if q.covers(one, covered) {
			actions = append(actions, q.begin("apply_firewall", on(kindFirewall, one.ID), on(kindServer, covered.ID)))
		}
	}
	return map[string]any{"actions": views(actions)}, nil
}

// checkFirewallResources refuses resources that do not exist or cannot have a firewall.
func (c *Cloud) checkFirewallResources(wanted []schema.FirewallResource) error {
	for _, to := range wanted {
		switch {
		case to.Type == "server" && to.Server != nil:
			one := c.state.Servers[to.Server.ID]
			if one == nil {
				return refuse("firewall_resource_not_found", "server with ID '%d' not found", to.Server.ID)
			}
			if c.addressOf(one.ID, "ipv4") == nil && c.addressOf(one.ID, "ipv6") == nil {
				return refuse("private_net_only_server", "server %s has no public interface", one.Name)
			}
			if len(c.firewallsOn(one)) >= firewallsMax {
				return refuse("resource_limit_exceeded", "server %s has %d firewalls already", one.Name, firewallsMax)
			}
		case to.Type == "label_selector" && to.LabelSelector != nil && to.LabelSelector.Selector != "":
			if _, err := parseSelector(to.LabelSelector.Selector); err != nil {
				return invalid("selector", "%v", err)
			}
		default:
			return invalid("type", "%q is not server or label_selector, or the field of that name is missing", to.Type)
		}
	}
	return nil
}

// firewallsOn are the firewalls applied to a server.
func (c *Cloud) firewallsOn(one *server) []*firewall {
	var found []*firewall
	for _, wall := range ordered(c.state.Firewalls) {
		if c.covers(wall, one) {
			found = append(found, wall)
		}
	}
	return found
}

// apply applies the firewall to a resource that was checked before.
func (q *call) apply(one *firewall, to schema.FirewallResource) []*action {
	if to.Type == "server" {
		one.Servers = append(one.Servers, to.Server.ID)
		return []*action{q.begin("apply_firewall", on(kindFirewall, one.ID), on(kindServer, to.Server.ID))}
	}
	one.Selectors = append(one.Selectors, to.LabelSelector.Selector)
	actions := []*action{}
	for _, covered := range q.selected(to.LabelSelector.Selector) {
		actions = append(actions, q.begin("apply_firewall", on(kindFirewall, one.ID), on(kindServer, covered.ID)))
	}
	return actions
}

// has says whether the firewall is applied to exactly that resource.
func (f *firewall) has(to schema.FirewallResource) bool {
	if to.Type == "server" {
		return slices.Contains(f.Servers, to.Server.ID)
	}
	return slices.Contains(f.Selectors, to.LabelSelector.Selector)
}

func applyFirewall(q *call, one *firewall, wanted schema.FirewallActionApplyToResourcesRequest) (any, error) {
	if err := q.checkFirewallResources(wanted.ApplyTo); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(wanted.ApplyTo, one.has) {
		return nil, refuse("firewall_already_applied", "the firewall is already applied to the resource")
	}
	actions := []*action{}
	for _, to := range wanted.ApplyTo {
		actions = append(actions, q.apply(one, to)...)
	}
	return map[string]any{"actions": views(actions)}, nil
}

// removeFirewall removes the firewall from resources. It ignores those that it is not applied to, as the API does since
// August 2025.
func removeFirewall(q *call, one *firewall, wanted schema.FirewallActionRemoveFromResourcesRequest) (any, error) {
	if err := q.checkRemoval(one, wanted.RemoveFrom); err != nil {
		return nil, err
	}
	actions := []*action{}
	for _, from := range wanted.RemoveFrom {
		var uncovered []int64
		switch {
		case !one.has(from):
			continue
		case from.Type == "server":
			one.Servers = slices.DeleteFunc(one.Servers, func(id int64) bool { return id == from.Server.ID })
			uncovered = []int64{from.Server.ID}
		default:
			for _, covered := range q.selected(from.LabelSelector.Selector) {
				uncovered = append(uncovered, covered.ID)
			}
			one.Selectors = slices.DeleteFunc(one.Selectors,
				func(text string) bool { return text == from.LabelSelector.Selector })
		}
		for _, id := range uncovered {
			actions = append(actions, q.begin("remove_firewall", on(kindFirewall, one.ID), on(kindServer, id)))
		}
	}
	return map[string]any{"actions": views(actions)}, nil
}

func (q *call) checkRemoval(one *firewall, wanted []schema.FirewallResource) error {
	for _, from := range wanted {
		switch {
		case from.Type == "server" && from.Server != nil:
			covered := q.state.Servers[from.Server.ID]
			if covered != nil && !one.has(from) && q.covers(one, covered) {
				return refuse("firewall_managed_by_label_selector", "the firewall is applied to server %s by a label selector",
					covered.Name)
			}
		case from.Type == "label_selector" && from.LabelSelector != nil:
		default:
			return invalid("type", "%q is not server or label_selector, or the field of that name is missing", from.Type)
		}
	}
	return nil
}

var rulePort = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?$|^any$`)

// parseRules checks rules and fills in the fields that the API always returns.
func parseRules(wanted []schema.FirewallRuleRequest) ([]schema.FirewallRule, error) {
	if len(wanted) > rulesMax {
		return nil, invalid("rules", "a firewall has at most %d rules", rulesMax)
	}
	var rules []schema.FirewallRule
	for _, one := range wanted {
		rule := schema.FirewallRule{
			Direction: one.Direction, SourceIPs: orEmpty(one.SourceIPs), DestinationIPs: orEmpty(one.DestinationIPs),
			Protocol: one.Protocol, Port: one.Port, Description: one.Description,
		}
		peers := map[string][]string{"in": rule.SourceIPs, "out": rule.DestinationIPs}[rule.Direction]
		hasPort := rule.Protocol == "tcp" || rule.Protocol == "udp"
		switch {
		case rule.Direction != "in" && rule.Direction != "out":
			return nil, invalid("rules", "direction %q is not in or out", rule.Direction)
		case !slices.Contains([]string{"tcp", "udp", "icmp", "esp", "gre"}, rule.Protocol):
			return nil, invalid("rules", "protocol %q is not tcp, udp, icmp, esp or gre", rule.Protocol)
		case hasPort && (rule.Port == nil || !rulePort.MatchString(*rule.Port)):
			return nil, invalid("rules", "a %s rule needs a port, a range of ports or any", rule.Protocol)
		case !hasPort && rule.Port != nil:
			return nil, invalid("rules", "a %s rule has no port", rule.Protocol)
		case len(peers) == 0:
			return nil, invalid("rules", "a rule for direction %s needs addresses of the remote end", rule.Direction)
		}
		for _, text := range peers {
			if part, err := netip.ParsePrefix(text); err != nil || part != part.Masked() {
				return nil, invalid("rules", "%q is not a range in CIDR form", text)
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}
