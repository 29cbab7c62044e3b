package hetznertest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.onlyToken && r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized, "unauthorized", "unable to authenticate")
		return
	}
	s.tick()
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var of resource
	if len(words) > 1 {
		id, _ := strconv.ParseInt(words[1], 10, 64)
		of = s.find(words[0], id)
	}
	switch {
	case r.URL.Path == "/pricing":
		reply(w, http.StatusOK, resource{"pricing": priceList()})
	case words[0] == "actions", r.URL.Path == "/images/actions":
		s.serveActions(w, r, words)
	case len(words) == 1 && r.Method == http.MethodGet:
		reply(w, http.StatusOK, resource{words[0]: s.list(words[0], r.URL.Query())})
	case len(words) == 1:
		s.create(w, r, words[0])
	case of == nil:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	case len(words) == 4:
		s.act(w, r, words[0], of, words[3])
	case r.Method == http.MethodDelete:
		s.remove(w, words[0], of)
	default:
		if r.Method == http.MethodPut {
			var change resource
			if !decode(w, r, &change) {
				return
			}
			maps.Copy(of, change)
		}
		reply(w, http.StatusOK, resource{strings.TrimSuffix(words[0], "s"): of})
	}
}

// selecting is the query for a label selector.
func selecting(selector string) url.Values { return url.Values{"label_selector": {selector}} }

// list selects by labels, name and architecture, as far as the query has them. A selector that is none selects nothing.
func (s *Server) list(collection string, q url.Values) []resource {
	found := []resource{}
	selector, err := labels.Parse(q.Get("label_selector"))
	if err != nil {
		return found
	}
	for _, r := range s.all[collection] {
		of := labels.Set{}
		given, _ := r["labels"].(resource)
		for k, v := range given {
			of[k], _ = v.(string)
		}
		is := func(field string) bool { return q.Get(field) == "" || r[field] == q.Get(field) }
		if selector.Matches(of) && is("name") && is("architecture") {
			found = append(found, r)
		}
	}
	slices.SortStableFunc(found, func(a, b resource) int { return cmp.Compare(idOf(a), idOf(b)) })
	return found
}

// newID is one that nothing in the collection has.
func (s *Server) newID(collection string) int64 {
	for s.made++; s.find(collection, s.made) != nil; {
		s.made++
	}
	return s.made
}

// create makes a resource. A name is taken once.
func (s *Server) create(w http.ResponseWriter, r *http.Request, collection string) {
	var body resource
	if !decode(w, r, &body) {
		return
	}
	name, _ := body["name"].(string)
	if name == "" || s.named(collection, name) != nil {
		refuse(w, http.StatusConflict, "uniqueness_error", "name is already used")
		return
	}
	made := resource{"id": float64(s.newID(collection)), "name": name, "labels": body["labels"],
		"created": time.Now()}
	answer := resource{strings.TrimSuffix(collection, "s"): made, "actions": []any{}, "next_actions": []any{},
		"action": schema.Action{ID: 1, Status: "success", Progress: 100}}
	switch collection {
	case "servers":
		kind, _ := body["server_type"].(string)
		sold := s.named("server_types", kind)
		if sold == nil || sold["sold_out"] == true {
			refuse(w, http.StatusUnprocessableEntity, "resource_unavailable", "error during placement")
			return
		}
		made["server_type"], made["status"] = sold, "initializing"
		answer["action"] = s.begin("create_server", 2, func() { made["status"] = "off" }, ref("server", idOf(made)))
	case "primary_ips":
		s.addresses++
		made["ip"], made["type"] = fmt.Sprintf("127.0.0.%d", 8+s.addresses), body["type"]
		made["location"] = schema.Location{ID: 1, Name: body["location"].(string)}
	case "load_balancers":
		public, _ := body["public_net"].(resource)
		ip := "127.0.0.200"
		for _, has := range s.all["primary_ips"] {
			if has["id"] == public["ipv4"] {
				has["assignee_id"], has["assignee_type"] = made["id"], "load_balancer"
				ip, _ = has["ip"].(string)
			}
		}
		made["public_net"] = resource{"enabled": true, "ipv4": resource{"ip": ip}}
		made["services"] = body["services"]
	case "placement_groups":
		made["type"] = body["type"]
	case "firewalls":
		made["rules"] = body["rules"]
	}
	s.all[collection] = append(s.all[collection], made)
	reply(w, http.StatusCreated, answer)
}

func (s *Server) createImage(w http.ResponseWriter, of, body resource) {
	kind, _ := of["server_type"].(resource)
	made := resource{"id": float64(s.newID("images")), "type": "snapshot", "status": "creating", "created": time.Now(),
		"description": body["description"], "labels": body["labels"], "architecture": kind["architecture"],
		"disk_size": kind["disk"]}
	s.all["images"] = append(s.all["images"], made)
	a := s.begin("create_image", 2, func() { made["status"] = "available" }, ref("server", idOf(of)),
		ref("image", idOf(made)))
	reply(w, http.StatusCreated, resource{"image": made, "action": a})
}

func (s *Server) remove(w http.ResponseWriter, collection string, r resource) {
	id := idOf(r)
	protection, _ := r["protection"].(resource)
	used := inUse(collection, r, s.all["load_balancers"])
	switch {
	case s.locked[id] > 0:
		s.locked[id]--
		refuse(w, http.StatusLocked, "locked", "another action is running")
	case protection["delete"] == true:
		refuse(w, http.StatusForbidden, "protected", "deletion is protected")
	case used != "":
		refuse(w, http.StatusConflict, "resource_in_use", used)
	case collection == "servers" && s.busy(id):
		refuse(w, http.StatusLocked, "locked", "another action is running")
	case collection == "servers":
		r["status"] = "deleting"
		reply(w, http.StatusOK, resource{"action": s.begin("delete_server", s.takes, func() { s.gone(id) },
			ref("server", id))})
	default:
		s.drop(collection, id)
		if collection == "load_balancers" {
			s.unassign(id)
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// inUse says what depends on a resource.
func inUse(collection string, r resource, balancers []resource) string {
	switch members, _ := r["servers"].([]any); {
	case collection == "networks" && slices.ContainsFunc(balancers, func(lb resource) bool {
		return slices.ContainsFunc(each(lb["private_net"]), func(n resource) bool { return n["network"] == r["id"] })
	}):
		return "a load balancer is attached"
	case collection == "placement_groups" && len(members) > 0:
		return "it has servers"
	case collection == "firewalls" && len(each(r["applied_to"])) > 0:
		return "it is applied"
	case collection == "primary_ips" && r["assignee_id"] != nil:
		return "it is assigned"
	case collection == "volumes" && r["server"] != nil:
		return "it is attached"
	}
	return ""
}

// unassign makes the Primary IPs of a load balancer free that is gone.
func (s *Server) unassign(balancer int64) {
	for _, ip := range s.all["primary_ips"] {
		if id, _ := ip["assignee_id"].(float64); int64(id) == balancer {
			ip["assignee_id"] = nil
		}
	}
}

// gone takes a server away, and from what names it.
func (s *Server) gone(id int64) {
	s.drop("servers", id)
	for _, c := range []string{"networks", "placement_groups"} {
		for _, r := range s.all[c] {
			members, _ := r["servers"].([]any)
			r["servers"] = slices.DeleteFunc(slices.Clone(members), func(m any) bool { return m == float64(id) })
		}
	}
	for _, v := range s.all["volumes"] {
		if v["server"] == float64(id) {
			v["server"] = nil
		}
	}
	for _, lb := range s.all["load_balancers"] {
		lb["targets"] = slices.DeleteFunc(each(lb["targets"]), func(t resource) bool {
			server, _ := t["server"].(resource)
			return idOf(server) == id
		})
	}
}

// each is a list of resources, as JSON has it or as this package made it.
func each(list any) []resource {
	if made, is := list.([]resource); is {
		return made
	}
	var found []resource
	all, _ := list.([]any)
	for _, one := range all {
		if r, ok := one.(resource); ok {
			found = append(found, r)
		}
	}
	return found
}

// decode reads the body of a request, which some actions have none of, or refuses the request.
func decode(w http.ResponseWriter, r *http.Request, body any) bool {
	err := json.NewDecoder(r.Body).Decode(body)
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_input", err.Error())
	}
	return err == nil
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, schema.ErrorResponse{Error: schema.Error{Code: code, Message: message}})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
