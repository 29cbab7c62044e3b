package hetznertest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// SetFirewalls replaces the firewalls.
func (s *Server) SetFirewalls(walls ...schema.Firewall) { s.between(func() { s.walls = walls }) }

// Firewalls are the firewalls at present.
func (s *Server) Firewalls() (walls []schema.Firewall) {
	s.between(func() { walls = slices.Clone(s.walls) })
	return walls
}

// serveFirewalls answers for /firewalls and its actions, which are done at once. A firewall that is applied to a
// selector is over the servers that carry the label at that moment.
func (s *Server) serveFirewalls(w http.ResponseWriter, r *http.Request, named func(string) bool,
	chosen func(map[string]string) bool) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(words) == 1 && r.Method == http.MethodGet {
		reply(w, http.StatusOK, map[string]any{"firewalls": keep(s.walls,
			func(f schema.Firewall) bool { return named(f.Name) && chosen(f.Labels) })})
		return
	}
	if len(words) == 1 {
		var body schema.FirewallCreateRequest
		if !decode(w, r, &body) {
			return
		}
		if slices.ContainsFunc(s.walls, func(f schema.Firewall) bool { return f.Name == body.Name }) {
			refuse(w, http.StatusUnprocessableEntity, "uniqueness_error", "name is already used")
			return
		}
		f := schema.Firewall{ID: int64(len(s.walls) + 1), Name: body.Name, Rules: answered(body.Rules)}
		if body.Labels != nil {
			f.Labels = *body.Labels
		}
		s.walls = append(s.walls, f)
		reply(w, http.StatusCreated, map[string]any{"firewall": f, "actions": []any{}})
		return
	}
	id, _ := strconv.ParseInt(words[1], 10, 64)
	at := slices.IndexFunc(s.walls, func(f schema.Firewall) bool { return f.ID == id })
	if at < 0 {
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
		return
	}
	switch words[len(words)-1] {
	case "set_rules":
		var body schema.FirewallActionSetRulesRequest
		if !decode(w, r, &body) {
			return
		}
		s.walls[at].Rules = answered(body.Rules)
	case "apply_to_resources":
		var body schema.FirewallActionApplyToResourcesRequest
		if !decode(w, r, &body) {
			return
		}
		s.walls[at].AppliedTo = append(s.walls[at].AppliedTo, body.ApplyTo...)
		for i, v := range s.servers {
			if matches(body.ApplyTo[0].LabelSelector.Selector, v.Labels) {
				s.servers[i].PublicNet.Firewalls = append(v.PublicNet.Firewalls, schema.ServerFirewall{ID: id, Status: "applied"})
			}
		}
	case "remove_from_resources":
		var body schema.FirewallActionRemoveFromResourcesRequest
		if !decode(w, r, &body) {
			return
		}
		s.walls[at].AppliedTo = slices.DeleteFunc(s.walls[at].AppliedTo, func(f schema.FirewallResource) bool {
			return f.LabelSelector != nil && f.LabelSelector.Selector == body.RemoveFrom[0].LabelSelector.Selector
		})
	}
	reply(w, http.StatusCreated, map[string]any{"actions": []any{}})
}

// answered is how the API gives back the rules that it was given.
func answered(rules []schema.FirewallRuleRequest) []schema.FirewallRule {
	all := make([]schema.FirewallRule, len(rules))
	for i, r := range rules {
		all[i] = schema.FirewallRule(r)
	}
	return all
}
