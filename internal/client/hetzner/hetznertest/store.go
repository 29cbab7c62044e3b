package hetznertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Store is a project with resources of every kind that a cluster has, to be listed, labelled and deleted as the real
// API does it: what is in use is not deleted, servers take their time, and with a server what depends on it is deleted.
type Store struct {
	api

	all    map[string]map[int64]resource // collection → id → resource
	going  map[int64]int                 // action of a server's deletion → requests that it still takes
	locked map[int64]int                 // resource → attempts at its deletion that are refused
	takes  int                           // requests that a server outlives its deletion by
	budget [2]int                        // requests an hour, and how many are left; 0: none is reported
}

type resource = map[string]any

// deletionTakes is how many requests a server outlives its deletion by.
const deletionTakes = 3

// NewStore starts an empty project on loopback.
func NewStore() *Store {
	s := &Store{all: map[string]map[int64]resource{}, going: map[int64]int{}, locked: map[int64]int{},
		takes: deletionTakes}
	s.start(s.serve)
	return s
}

// Put plants a resource, one of schema's types, in a collection ("load_balancers").
func (s *Store) Put(collection string, id int64, value any) {
	data, err := json.Marshal(value)
	var r resource
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		panic(err) // of a test's own making
	}
	r["id"] = id
	s.between(func() {
		if s.all[collection] == nil {
			s.all[collection] = map[int64]resource{}
		}
		s.all[collection][id] = r
	})
}

// Lock refuses the next attempts at a resource's deletion: another client is working on it.
func (s *Store) Lock(id int64, attempts int) { s.between(func() { s.locked[id] = attempts }) }

// DeletionTakes sets how many requests a server outlives its deletion by.
func (s *Store) DeletionTakes(requests int) { s.between(func() { s.takes = requests }) }

// Drop removes a resource at once, whatever uses it.
func (s *Store) Drop(collection string, id int64) {
	s.between(func() { delete(s.all[collection], id) })
}

// Budget is in every answer: how many requests an hour there are, and how many are left.
func (s *Store) Budget(limit, remaining int) {
	s.between(func() { s.budget = [2]int{limit, remaining} })
}

// Left lists what there is, as "networks/7".
func (s *Store) Left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []string
	for collection, all := range s.all {
		for id := range all {
			left = append(left, fmt.Sprintf("%s/%d", collection, id))
		}
	}
	slices.Sort(left)
	return left
}

// Snapshot is a resource as JSON.
func (s *Store) Snapshot(collection string, id int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, _ := json.Marshal(s.all[collection][id])
	return string(data)
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	s.tick()
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if limit := s.budget[0]; limit > 0 {
		w.Header().Set("RateLimit-Limit", strconv.Itoa(limit))
		w.Header().Set("RateLimit-Remaining", strconv.Itoa(s.budget[1]))
		w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Unix(), 10))
	}
	var id int64
	if len(words) > 1 {
		id, _ = strconv.ParseInt(words[1], 10, 64)
	}
	switch {
	case r.URL.Path == "/pricing":
		reply(w, http.StatusOK, map[string]any{"pricing": priceList()})
	case r.URL.Path == "/actions":
		reply(w, http.StatusOK, map[string]any{"actions": s.actions(r.URL.Query()["id"])})
	case words[0] == "actions":
		reply(w, http.StatusOK, map[string]any{"action": s.action(id)})
	case len(words) == 1 && r.Method == http.MethodGet:
		reply(w, http.StatusOK, map[string]any{words[0]: s.list(words[0], r.URL.Query().Get("label_selector"),
			r.URL.Query().Get("name"))})
	case r.URL.Path == "/placement_groups" && r.Method == http.MethodPost:
		s.group(w, r)
	case s.all[words[0]][id] == nil:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	case len(words) == 2 && r.Method == http.MethodGet:
		reply(w, http.StatusOK, map[string]any{strings.TrimSuffix(words[0], "s"): s.all[words[0]][id]})
	case r.Method == http.MethodPut:
		var change resource
		_ = json.NewDecoder(r.Body).Decode(&change)
		maps.Copy(s.all[words[0]][id], change)
		reply(w, http.StatusOK, map[string]any{strings.TrimSuffix(words[0], "s"): s.all[words[0]][id]})
	case r.Method == http.MethodPost && words[len(words)-1] == "change_protection" && s.all[words[0]][id] != nil:
		var change resource
		_ = json.NewDecoder(r.Body).Decode(&change)
		s.all[words[0]][id]["protection"] = map[string]any{"delete": change["delete"]}
		reply(w, http.StatusCreated, map[string]any{"action": schema.Action{ID: 1, Status: "success"}})
	case r.Method == http.MethodPost && words[len(words)-1] == "remove_from_resources":
		s.all[words[0]][id]["applied_to"] = []any{}
		reply(w, http.StatusCreated, map[string]any{"actions": []any{}})
	case r.Method == http.MethodDelete:
		s.remove(w, words[0], id)
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	}
}

// group makes a placement group. A name is taken once.
func (s *Store) group(w http.ResponseWriter, r *http.Request) {
	var made resource
	if !decode(w, r, &made) {
		return
	}
	name, _ := made["name"].(string)
	if name == "" || len(s.list("placement_groups", "", name)) > 0 {
		refuse(w, http.StatusConflict, "uniqueness_error", "name is already used")
		return
	}
	if s.all["placement_groups"] == nil {
		s.all["placement_groups"] = map[int64]resource{}
	}
	id := int64(1000 + len(s.writes))
	made["id"], made["created"] = id, time.Now()
	s.all["placement_groups"][id] = made
	reply(w, http.StatusCreated, map[string]any{"placement_group": made})
}

// list selects by labels, and by name where one is given.
func (s *Store) list(collection, selector, name string) []resource {
	found := []resource{}
	for _, id := range slices.Sorted(maps.Keys(s.all[collection])) {
		labels := map[string]string{}
		given, _ := s.all[collection][id]["labels"].(map[string]any)
		for k, v := range given {
			labels[k], _ = v.(string)
		}
		if is, _ := s.all[collection][id]["name"].(string); matches(selector, labels) && (name == "" || is == name) {
			found = append(found, s.all[collection][id])
		}
	}
	return found
}

func (s *Store) remove(w http.ResponseWriter, collection string, id int64) {
	if s.locked[id] > 0 {
		s.locked[id]--
		refuse(w, http.StatusLocked, "locked", "another action is running")
		return
	}
	if protection, _ := s.all[collection][id]["protection"].(map[string]any); protection["delete"] == true {
		refuse(w, http.StatusForbidden, "protected", "deletion is protected")
		return
	}
	if why := s.inUse(collection, id); why != "" {
		refuse(w, http.StatusConflict, "resource_in_use", why)
		return
	}
	if collection == "servers" {
		if _, twice := s.going[id]; twice {
			refuse(w, http.StatusLocked, "locked", "it is being deleted")
			return
		}
		s.going[id] = s.takes
		reply(w, http.StatusOK, map[string]any{"action": s.action(id)})
		return
	}
	delete(s.all[collection], id)
	if collection == "load_balancers" {
		for _, ip := range s.all["primary_ips"] {
			if ip["assignee_id"] == float64(id) {
				ip["assignee_id"] = nil
			}
		}
	}
	w.WriteHeader(http.StatusNoContent)
}

// inUse says what depends on a resource.
func (s *Store) inUse(collection string, id int64) string {
	r := s.all[collection][id]
	switch collection {
	case "networks":
		for _, lb := range s.all["load_balancers"] {
			for _, net := range each(lb["private_net"]) {
				if net["network"] == float64(id) {
					return "a load balancer is attached"
				}
			}
		}
	case "placement_groups":
		if members, _ := r["servers"].([]any); len(members) > 0 {
			return "it has servers"
		}
	case "firewalls":
		if len(each(r["applied_to"])) > 0 {
			return "it is applied"
		}
	case "primary_ips":
		if r["assignee_id"] != nil {
			return "it is assigned"
		}
	case "volumes":
		if r["server"] != nil {
			return "it is attached"
		}
	}
	return ""
}

// tick lets time pass by one request.
func (s *Store) tick() {
	for id, left := range s.going {
		if s.going[id] = left - 1; left > 1 {
			continue
		}
		if s.all["servers"][id] == nil {
			continue
		}
		delete(s.all["servers"], id)
		without := func(list any) []any {
			members, _ := list.([]any)
			return slices.DeleteFunc(slices.Clone(members), func(m any) bool { return m == float64(id) })
		}
		for _, c := range []string{"networks", "placement_groups"} {
			for _, r := range s.all[c] {
				r["servers"] = without(r["servers"])
			}
		}
		for _, v := range s.all["volumes"] {
			if v["server"] == float64(id) {
				v["server"] = nil
			}
		}
		for _, lb := range s.all["load_balancers"] {
			lb["targets"] = slices.DeleteFunc(each(lb["targets"]), func(t resource) bool {
				server, _ := t["server"].(map[string]any)
				return server["id"] == float64(id)
			})
		}
	}
}

func (s *Store) action(id int64) schema.Action {
	a := schema.Action{ID: id, Command: "delete_server", Status: "success", Progress: 100}
	if s.going[id] > 0 {
		a.Status, a.Progress = "running", 50
	}
	return a
}

// actions are those with the given ids.
func (s *Store) actions(ids []string) []schema.Action {
	found := []schema.Action{}
	for _, text := range ids {
		if id, err := strconv.ParseInt(text, 10, 64); err == nil {
			found = append(found, s.action(id))
		}
	}
	return found
}

func each(list any) []resource {
	var found []resource
	switch list := list.(type) {
	case []any:
		for _, one := range list {
			if r, ok := one.(resource); ok {
				found = append(found, r)
			}
		}
	case []resource:
		found = list
	}
	return found
}

// priceList has round prices in nbg1: 5 EUR a cx33, 9 a cx43, 6 an lb11, 16 an lb21, 0.05 a GB of volume, 0.01 a GB of
// snapshot, 1 an IPv4.
func priceList() schema.Pricing {
	price := func(gross string) schema.Price { return schema.Price{Net: gross, Gross: gross} }
	server := func(id int64, name, monthly string) schema.PricingServerType {
		return schema.PricingServerType{ID: id, Name: name, Prices: []schema.PricingServerTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price(monthly)}}}
	}
	balancer := func(id int64, name, monthly string) schema.PricingLoadBalancerType {
		return schema.PricingLoadBalancerType{ID: id, Name: name, Prices: []schema.PricingLoadBalancerTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price(monthly)}}}
	}
	return schema.Pricing{
		Currency:          "EUR",
		Image:             schema.PricingImage{PricePerGBMonth: price("0.01")},
		Volume:            schema.PricingVolume{PricePerGBPerMonth: price("0.05")},
		ServerTypes:       []schema.PricingServerType{server(1, "cx33", "5.0000"), server(3, "cx43", "9.0000")},
		LoadBalancerTypes: []schema.PricingLoadBalancerType{balancer(1, "lb11", "6.0000"), balancer(2, "lb21", "16.0000")},
		PrimaryIPs: []schema.PricingPrimaryIP{{Type: "ipv4", Prices: []schema.PricingPrimaryIPTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price("1.0000")}}}},
	}
}
