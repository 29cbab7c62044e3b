package hetznertest

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// action is work that ends with a request, counted from the project's first.
type action struct {
	schema.Action
	ends int
	then func()
}

// begin starts an action on resources that ends with the request so many after the one that began it.
func (s *Server) begin(command string, requests int, then func(), on ...schema.ActionResourceReference) schema.Action {
	s.made++
	a := &action{ends: s.requests + requests, then: then,
		Action: schema.Action{ID: s.made, Command: command, Status: "running", Resources: on}}
	s.actions = append(s.actions, a)
	return a.Action
}

// tick lets time pass by one request.
func (s *Server) tick() {
	for _, a := range s.actions {
		if a.Status == "running" && s.requests >= a.ends {
			a.Status, a.Progress = "success", 100
			a.then()
		}
	}
}

// busy tells whether an action on a server is running.
func (s *Server) busy(server int64) bool {
	return slices.ContainsFunc(s.actions, func(a *action) bool {
		return a.Status == "running" && slices.Contains(a.Resources, ref("server", server))
	})
}

func ref(kind string, id int64) schema.ActionResourceReference {
	return schema.ActionResourceReference{ID: id, Type: kind}
}

func (s *Server) actionList(want func(schema.Action) bool) []schema.Action {
	list := []schema.Action{}
	for _, a := range s.actions {
		if want(a.Action) {
			list = append(list, a.Action)
		}
	}
	return list
}

// FailCreation plants the failed action of a snapshot's creation.
func (s *Server) FailCreation(image int64) {
	s.between(func() {
		s.begin("create_image", 0, nil, ref("image", image))
		failed := s.actions[len(s.actions)-1]
		failed.Status, failed.Error = "error", &schema.ActionError{Code: "action_failed", Message: "the disk is broken"}
	})
}

// serveActions answers for "/actions", "/images/actions" and one action.
func (s *Server) serveActions(w http.ResponseWriter, r *http.Request, words []string) {
	q := r.URL.Query()
	switch {
	case words[0] == "images":
		reply(w, http.StatusOK, resource{"actions": s.actionList(func(a schema.Action) bool {
			return a.Command == "create_image" && slices.Contains(q["status"], a.Status)
		})})
	case len(words) == 1:
		reply(w, http.StatusOK, resource{"actions": s.actionList(func(a schema.Action) bool {
			return slices.Contains(q["id"], strconv.FormatInt(a.ID, 10))
		})})
	default:
		found := s.actionList(func(a schema.Action) bool { return strconv.FormatInt(a.ID, 10) == words[1] })
		if len(found) == 0 {
			refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
			return
		}
		reply(w, http.StatusOK, resource{"action": found[0]})
	}
}

// act does what an action of a resource does: at once, but for those on servers.
func (s *Server) act(w http.ResponseWriter, r *http.Request, collection string, of resource, command string) {
	var body resource
	if !decode(w, r, &body) {
		return
	}
	id := idOf(of)
	done := schema.Action{ID: 1, Status: "success", Progress: 100}
	switch {
	case collection == "servers" && s.busy(id):
		refuse(w, http.StatusLocked, "locked", "another action is running")
		return
	case collection == "servers" && command == "create_image":
		s.createImage(w, of, body)
		return
	case collection == "servers":
		reply(w, http.StatusCreated, resource{"action": s.begin(command, 2, func() {}, ref("server", id)),
			"root_password": "unused"})
		return
	case command == "change_protection":
		of["protection"] = resource{"delete": body["delete"]}
	case command == "add_target":
		server, _ := body["server"].(resource)
		target(of, idOf(server), body["use_private_ip"])
	case command == "set_rules":
		of["rules"] = body["rules"]
	case command == "apply_to_resources":
		s.cover(of, each(body["apply_to"]))
	case command == "remove_from_resources":
		of["applied_to"] = slices.DeleteFunc(each(of["applied_to"]), func(f resource) bool {
			return slices.ContainsFunc(each(body["remove_from"]), func(o resource) bool { return selectorOf(f) == selectorOf(o) })
		})
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
		return
	}
	reply(w, http.StatusCreated, resource{"action": done, "actions": []any{}})
}

// target puts a server behind a load balancer.
func target(lb resource, server int64, private any) {
	lb["targets"] = append(each(lb["targets"]), resource{"type": "server", "server": resource{"id": float64(server)},
		"use_private_ip": private})
}

// cover applies a firewall to selectors, and so to the servers that carry the labels at that moment.
func (s *Server) cover(firewall resource, with []resource) {
	firewall["applied_to"] = append(each(firewall["applied_to"]), with...)
	for _, one := range with {
		for _, server := range s.list("servers", selecting(selectorOf(one))) {
			public, _ := server["public_net"].(resource)
			public["firewalls"] = append(each(public["firewalls"]), resource{"id": firewall["id"], "status": "applied"})
		}
	}
}

func selectorOf(applied resource) string {
	by, _ := applied["label_selector"].(resource)
	selector, _ := by["selector"].(string)
	return selector
}
