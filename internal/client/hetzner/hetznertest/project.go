package hetznertest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

// Project is the part of the Hetzner Cloud API that an image is made with: servers, SSH keys, snapshots and their
// actions. Its clock are the requests: an action ends with the second request after the one that began it.
type Project struct {
	api

	nextID  int64
	images  map[int64]*schema.Image
	servers map[int64]*schema.Server
	keys    map[int64]*schema.SSHKey
	actions map[int64]*projectAction
	soldOut map[string]bool
}

type projectAction struct {
	schema.Action
	ends int // number of the request with which it ends
	then func()
}

// NewProject starts an empty project on loopback. It sells cx23, cx33 and cx43 (x86), cax11 and cax21 (arm) in nbg1.
func NewProject() *Project {
	p := &Project{
		nextID: 100, images: map[int64]*schema.Image{}, servers: map[int64]*schema.Server{}, keys: map[int64]*schema.SSHKey{},
		actions: map[int64]*projectAction{}, soldOut: map[string]bool{},
	}
	p.start(p.serve)
	return p
}

// PutImage plants a snapshot and returns its id. An id of 0 gets the next one.
func (p *Project) PutImage(i schema.Image) int64 {
	p.between(func() {
		if i.ID == 0 {
			i.ID = p.newID()
		}
		p.images[i.ID] = &i
	})
	return i.ID
}

// PutServer plants a server.
func (p *Project) PutServer(v schema.Server) { p.between(func() { p.servers[v.ID] = &v }) }

// PutKey plants an SSH key.
func (p *Project) PutKey(k schema.SSHKey) { p.between(func() { p.keys[k.ID] = &k }) }

// FailCreation plants the failed action of a snapshot's creation.
func (p *Project) FailCreation(image int64) {
	p.between(func() {
		id := p.newID()
		p.actions[id] = &projectAction{Action: schema.Action{
			ID: id, Command: "create_image", Status: "error", Error: &schema.ActionError{Code: "action_failed",
				Message: "the disk is broken"},
			Resources: []schema.ActionResourceReference{{ID: image, Type: "image"}},
		}}
	})
}

// SellOut has no server of a type in stock.
func (p *Project) SellOut(serverType string) { p.between(func() { p.soldOut[serverType] = true }) }

// Drop removes a snapshot.
func (p *Project) Drop(image int64) { p.between(func() { delete(p.images, image) }) }

// Images lists the snapshots, oldest first.
func (p *Project) Images() []schema.Image { return listOf(p, p.images) }

// Servers lists the servers, oldest first.
func (p *Project) Servers() []schema.Server { return listOf(p, p.servers) }

// Keys lists the SSH keys, oldest first.
func (p *Project) Keys() []schema.SSHKey { return listOf(p, p.keys) }

func listOf[T any](p *Project, all map[int64]*T) (list []T) {
	p.between(func() { list = ordered(all) })
	return list
}

func ordered[T any](all map[int64]*T) []T {
	list := []T{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[id])
	}
	return list
}

func (p *Project) newID() int64 { p.nextID++; return p.nextID }

func (p *Project) serve(w http.ResponseWriter, r *http.Request) {
	for _, id := range slices.Sorted(maps.Keys(p.actions)) {
		if a := p.actions[id]; a.Status == "running" && p.requests >= a.ends {
			a.Status, a.Progress = "success", 100
			a.then()
		}
	}
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	selector, err := labels.Parse(r.URL.Query().Get("label_selector"))
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "invalid_input", err.Error())
		return
	}
	id, _ := strconv.ParseInt(words[len(words)-1], 10, 64) // of one resource; 0 in other requests
	switch {
	case len(words) == 1 && r.Method == http.MethodGet:
		p.list(w, r, words[0], selector)
	case r.URL.Path == "/images/actions":
		reply(w, http.StatusOK, map[string]any{"actions": p.actionList(func(a schema.Action) bool {
			return a.Command == "create_image" && slices.Contains(r.URL.Query()["status"], a.Status)
		})})
	case r.Method == http.MethodGet && words[0] == "images" && p.images[id] != nil:
		reply(w, http.StatusOK, map[string]any{"image": p.images[id]})
	case r.Method == http.MethodPost:
		p.post(w, r, words)
	case r.Method == http.MethodDelete && len(words) == 2:
		p.remove(w, words[0], id)
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	}
}

func (p *Project) list(w http.ResponseWriter, r *http.Request, what string, selector labels.Selector) {
	q := r.URL.Query()
	named := func(name string) bool { return q.Get("name") == "" || q.Get("name") == name }
	var found any
	switch what {
	case "locations":
		found = keep([]schema.Location{{ID: 1, Name: "nbg1", NetworkZone: "eu-central"}},
			func(l schema.Location) bool { return named(l.Name) })
	case "load_balancer_types":
		found = keep([]schema.LoadBalancerType{{ID: 1, Name: "lb11", MaxTargets: 25, MaxServices: 5}},
			func(t schema.LoadBalancerType) bool { return named(t.Name) })
	case "server_types":
		found = keep(serverTypes(), func(t schema.ServerType) bool { return named(t.Name) })
	case "images":
		found = keep(ordered(p.images), func(i schema.Image) bool {
			return q.Get("name") == "" && selector.Matches(labels.Set(i.Labels)) && (q.Get("architecture") == "" ||
				q.Get("architecture") == i.Architecture)
		})
	case "servers":
		found = keep(ordered(p.servers), func(v schema.Server) bool { return selector.Matches(labels.Set(v.Labels)) })
	case "ssh_keys":
		found = keep(ordered(p.keys), func(k schema.SSHKey) bool { return selector.Matches(labels.Set(k.Labels)) })
	case "actions":
		found = p.actionList(func(a schema.Action) bool { return slices.Contains(q["id"], strconv.FormatInt(a.ID, 10)) })
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
		return
	}
	reply(w, http.StatusOK, map[string]any{what: found})
}

func serverTypes() []schema.ServerType {
	kind := func(id int64, name, architecture string, disk int, price string) schema.ServerType {
		return schema.ServerType{ID: id, Name: name, Architecture: architecture, Disk: disk,
			Prices: []schema.PricingServerTypePrice{
				{Location: "nbg1", PriceHourly: schema.Price{Net: price}},
			}}
	}
	retired := kind(6, "cx22", "x86", 40, "0.001")
	retired.Deprecation = &schema.DeprecationInfo{Announced: time.Now(), UnavailableAfter: time.Now().Add(time.Hour)}
	return []schema.ServerType{
		kind(1, "cx33", "x86", 80, "0.008"), kind(2, "cx43", "x86", 160, "0.014"), kind(3, "cx23", "x86", 40, "0.005"),
		kind(4, "cax21", "arm", 80, "0.009"), kind(5, "cax11", "arm", 40, "0.006"), retired,
	}
}

func (p *Project) post(w http.ResponseWriter, r *http.Request, words []string) {
	switch {
	case r.URL.Path == "/ssh_keys":
		var body schema.SSHKeyCreateRequest
		if decode(w, r, &body) {
			k := &schema.SSHKey{ID: p.newID(), Name: body.Name, Labels: *body.Labels, Created: time.Now()}
			p.keys[k.ID] = k
			reply(w, http.StatusCreated, map[string]any{"ssh_key": k})
		}
	case r.URL.Path == "/servers":
		p.createServer(w, r)
	case len(words) == 4 && words[0] == "servers" && words[2] == "actions":
		id, _ := strconv.ParseInt(words[1], 10, 64)
		p.serverAction(w, r, id, words[3])
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	}
}

func (p *Project) createServer(w http.ResponseWriter, r *http.Request) {
	var body schema.ServerCreateRequest
	if !decode(w, r, &body) {
		return
	}
	at := slices.IndexFunc(serverTypes(), func(t schema.ServerType) bool { return t.Name == body.ServerType.Name })
	if at < 0 || p.soldOut[body.ServerType.Name] {
		refuse(w, http.StatusUnprocessableEntity, "resource_unavailable", "error during placement")
		return
	}
	v := &schema.Server{ID: p.newID(), Name: body.Name, Labels: *body.Labels, ServerType: serverTypes()[at],
		Status: "initializing", Created: time.Now()}
	p.servers[v.ID] = v
	a := p.begin("create_server", v.ID, 0, func() { v.Status = "off" })
	reply(w, http.StatusCreated, map[string]any{"server": v, "action": a, "next_actions": []any{}})
}

func (p *Project) serverAction(w http.ResponseWriter, r *http.Request, id int64, command string) {
	v := p.servers[id]
	if v == nil {
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
		return
	}
	if p.locked(id) {
		refuse(w, http.StatusUnprocessableEntity, "locked", "another action is running")
		return
	}
	if command != "create_image" {
		reply(w, http.StatusCreated, map[string]any{"action": p.begin(command, id, 0, func() {}), "root_password": "unused"})
		return
	}
	var body schema.ServerActionCreateImageRequest
	if !decode(w, r, &body) {
		return
	}
	i := &schema.Image{
		ID: p.newID(), Type: "snapshot", Status: "creating", Description: *body.Description, Labels: *body.Labels,
		Architecture: v.ServerType.Architecture, DiskSize: float32(v.ServerType.Disk), Created: new(time.Time),
	}
	*i.Created = time.Now()
	p.images[i.ID] = i
	a := p.begin(command, id, i.ID, func() { i.Status = "available" })
	reply(w, http.StatusCreated, map[string]any{"image": i, "action": a})
}

func (p *Project) remove(w http.ResponseWriter, what string, id int64) {
	switch {
	case what == "images" && p.images[id] != nil:
		delete(p.images, id)
		w.WriteHeader(http.StatusNoContent)
	case what == "ssh_keys" && p.keys[id] != nil:
		delete(p.keys, id)
		w.WriteHeader(http.StatusNoContent)
	case what == "servers" && p.servers[id] != nil && p.locked(id):
		refuse(w, http.StatusUnprocessableEntity, "locked", "another action is running")
	case what == "servers" && p.servers[id] != nil:
		p.servers[id].Status = "deleting"
		reply(w, http.StatusOK, map[string]any{"action": p.begin("delete_server", id, 0, func() { delete(p.servers, id) })})
	default:
		refuse(w, http.StatusNotFound, "not_found", fmt.Sprint(what, " ", id))
	}
}

// begin starts an action on a server, and on an image where that is not 0.
func (p *Project) begin(command string, server, image int64, then func()) schema.Action {
	a := &projectAction{ends: p.requests + 2, then: then, Action: schema.Action{
		ID: p.newID(), Command: command, Status: "running", Resources: []schema.ActionResourceReference{{ID: server,
			Type: "server"}},
	}}
	if image != 0 {
		a.Resources = append(a.Resources, schema.ActionResourceReference{ID: image, Type: "image"})
	}
	p.actions[a.ID] = a
	return a.Action
}

func (p *Project) locked(server int64) bool {
	return len(p.actionList(func(a schema.Action) bool {
		return a.Status == "running" && a.Resources[0] == schema.ActionResourceReference{ID: server, Type: "server"}
	})) > 0
}

func (p *Project) actionList(want func(schema.Action) bool) []schema.Action {
	list := []schema.Action{}
	for _, id := range slices.Sorted(maps.Keys(p.actions)) {
		if a := p.actions[id].Action; want(a) {
			list = append(list, a)
		}
	}
	return list
}
