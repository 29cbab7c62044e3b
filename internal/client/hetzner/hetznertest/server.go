// Package hetznertest is a part of the Hetzner Cloud API in memory, for tests. It lists, labels, creates and deletes
// what a cluster has as the real API does it: what is in use is not deleted, servers take their time, and with a server
// what depends on it is deleted. Its clock is the requests.
package hetznertest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Token is the one that the server is asked with.
const Token = "planted-token-of-the-tests"

// EndpointIP is the address of the first Primary IP that is created; the next ones follow it.
const EndpointIP = "127.0.0.9"

// deletionTakes is how many requests a server outlives its deletion by.
const deletionTakes = 3

// resource is one as the API's JSON has it.
type resource = map[string]any

// Server is the API of one project, on loopback. It answers one request at a time.
type Server struct {
	*httptest.Server

	mu       sync.Mutex
	requests int
	writes   []string
	readOnly bool
	// onlyToken refuses every other token than Token.
	onlyToken bool
	budget    [2]int // requests an hour, and how many are left; 0: none is reported

	all       map[string][]resource // by collection
	made      int64                 // the id that was given last; those that tests give are lower
	addresses int                   // Primary IPs that were created so far
	actions   []*action
	locked    map[int64]int // resource → attempts at its deletion that are refused
	takes     int           // requests that a server outlives its deletion by
}

// NewEmpty starts an empty project, at a Hetzner that sells nothing unless a test puts it in.
func NewEmpty() *Server {
	s := &Server{all: map[string][]resource{}, made: 500, locked: map[int64]int{}, takes: deletionTakes}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// another one for each answer, which hcloud-go puts into the texts of errors
		w.Header().Set("X-Correlation-Id", fmt.Sprintf("%016x", rand.Uint64()))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests++
		if r.Method != http.MethodGet {
			s.writes = append(s.writes, r.Method+" "+r.URL.Path)
			if s.readOnly {
				refuse(w, http.StatusForbidden, "token_readonly", "the token is only allowed to perform GET requests")
				return
			}
		}
		if limit := s.budget[0]; limit > 0 {
			w.Header().Set("RateLimit-Limit", strconv.Itoa(limit))
			w.Header().Set("RateLimit-Remaining", strconv.Itoa(s.budget[1]))
			w.Header().Set("RateLimit-Reset", strconv.FormatInt(time.Now().Unix(), 10))
		}
		s.serve(w, r)
	}))
	return s
}

// Client speaks to the server through a transport; nil: the usual one. It polls fast and does not retry.
func (s *Server) Client(transport http.RoundTripper) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithToken(Token),
		hcloud.WithHTTPClient(&http.Client{Transport: transport}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(time.Millisecond)}))
}

// between reads or changes the project between two requests.
func (s *Server) between(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// ReadOnly makes the token one for reading alone.
func (s *Server) ReadOnly() { s.between(func() { s.readOnly = true }) }

// Budget is in every answer: how many requests an hour there are, and how many are left.
func (s *Server) Budget(limit, remaining int) {
	s.between(func() { s.budget = [2]int{limit, remaining} })
}

// Requests is how many there were.
func (s *Server) Requests() (n int) {
	s.between(func() { n = s.requests })
	return n
}

// Writes lists the requests so far that were not GET.
func (s *Server) Writes() (writes []string) {
	s.between(func() { writes = slices.Clone(s.writes) })
	return writes
}

// Put plants a resource, one of schema's types, in a collection ("load_balancers"), in place of one with its id.
func (s *Server) Put(collection string, id int64, value any) {
	r := asResource(value)
	r["id"] = float64(id)
	s.between(func() {
		s.drop(collection, id)
		s.all[collection] = append(s.all[collection], r)
	})
}

// Drop removes a resource at once, whatever uses it.
func (s *Server) Drop(collection string, id int64) { s.between(func() { s.drop(collection, id) }) }

func (s *Server) drop(collection string, id int64) {
	s.all[collection] = slices.DeleteFunc(s.all[collection], func(r resource) bool { return idOf(r) == id })
}

// Lock refuses the next attempts at a resource's deletion: another client is working on it.
func (s *Server) Lock(id int64, attempts int) { s.between(func() { s.locked[id] = attempts }) }

// DeletionTakes sets how many requests a server outlives its deletion by.
func (s *Server) DeletionTakes(requests int) { s.between(func() { s.takes = requests }) }

// SellOut has no server of a type in stock.
func (s *Server) SellOut(serverType string) {
	s.between(func() { s.named("server_types", serverType)["sold_out"] = true })
}

// Left lists what there is, as "networks/7".
func (s *Server) Left() (left []string) {
	s.between(func() {
		for collection, all := range s.all {
			for _, r := range all {
				left = append(left, fmt.Sprintf("%s/%d", collection, idOf(r)))
			}
		}
	})
	slices.Sort(left)
	return left
}

// Snapshot is a resource as JSON.
func (s *Server) Snapshot(collection string, id int64) string {
	var data []byte
	s.between(func() { data, _ = json.Marshal(s.find(collection, id)) })
	return string(data)
}

// find is a resource by its id; nil: there is none.
func (s *Server) find(collection string, id int64) resource {
	for _, r := range s.all[collection] {
		if idOf(r) == id {
			return r
		}
	}
	return nil
}

// named is a resource by its name; nil: there is none.
func (s *Server) named(collection, name string) resource {
	for _, r := range s.all[collection] {
		if r["name"] == name {
			return r
		}
	}
	return nil
}

func idOf(r resource) int64 {
	id, _ := r["id"].(float64)
	return int64(id)
}

// asResource is a value of a type of package schema as JSON has it.
func asResource(value any) (r resource) {
	convert(value, &r)
	return r
}

func convert(from, to any) {
	data, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		panic(err) // of a test's own making
	}
}

func set[T any](s *Server, collection string, all []T) {
	var resources []resource
	convert(all, &resources)
	s.between(func() { s.all[collection] = resources })
}

func get[T any](s *Server, collection string) (all []T) {
	s.between(func() { convert(s.list(collection, nil), &all) })
	return all
}

// The resources of a kind at present, the oldest first, and what replaces them.

// Images are the snapshots.
func (s *Server) Images() []schema.Image { return get[schema.Image](s, "images") }

// SetImages replaces the images.
func (s *Server) SetImages(all ...schema.Image) { set(s, "images", all) }

// Servers are the servers.
func (s *Server) Servers() []schema.Server { return get[schema.Server](s, "servers") }

// SetServers replaces the servers.
func (s *Server) SetServers(all ...schema.Server) { set(s, "servers", all) }

// Keys are the SSH keys.
func (s *Server) Keys() []schema.SSHKey { return get[schema.SSHKey](s, "ssh_keys") }

// SetNetworks replaces the networks.
func (s *Server) SetNetworks(all ...schema.Network) { set(s, "networks", all) }

// LoadBalancers are the load balancers.
func (s *Server) LoadBalancers() []schema.LoadBalancer {
	return get[schema.LoadBalancer](s, "load_balancers")
}

// SetLoadBalancers replaces the load balancers.
func (s *Server) SetLoadBalancers(all ...schema.LoadBalancer) {
	was := s.LoadBalancers()
	set(s, "load_balancers", all)
	s.between(func() {
		for _, b := range was {
			if s.find("load_balancers", b.ID) == nil {
				s.unassign(b.ID)
			}
		}
	})
}

// PrimaryIPs are the Primary IPs.
func (s *Server) PrimaryIPs() []schema.PrimaryIP { return get[schema.PrimaryIP](s, "primary_ips") }

// SetPrimaryIPs replaces the Primary IPs.
func (s *Server) SetPrimaryIPs(all ...schema.PrimaryIP) { set(s, "primary_ips", all) }

// Firewalls are the firewalls.
func (s *Server) Firewalls() []schema.Firewall { return get[schema.Firewall](s, "firewalls") }

// SetFirewalls replaces the firewalls.
func (s *Server) SetFirewalls(all ...schema.Firewall) { set(s, "firewalls", all) }

// PlacementGroups are the placement groups.
func (s *Server) PlacementGroups() []schema.PlacementGroup {
	return get[schema.PlacementGroup](s, "placement_groups")
}

// SetPlacementGroups replaces the placement groups.
func (s *Server) SetPlacementGroups(all ...schema.PlacementGroup) { set(s, "placement_groups", all) }

// PutImage plants a snapshot and returns its id. An id of 0 gets the next one.
func (s *Server) PutImage(i schema.Image) int64 {
	if i.ID == 0 {
		s.between(func() { i.ID = s.newID("images") })
	}
	s.Put("images", i.ID, i)
	return i.ID
}

// OwnLoadBalancer gives a load balancer a label, as CAPH does when it adopts one.
func (s *Server) OwnLoadBalancer(name, label string) {
	s.between(func() {
		if lb := s.named("load_balancers", name); lb != nil {
			labels, _ := lb["labels"].(resource)
			labels[label] = "owned"
		}
	})
}

// TargetServers makes all servers targets of the load balancers with a label, as CAPH does.
func (s *Server) TargetServers(label string) {
	s.between(func() {
		for _, lb := range s.list("load_balancers", selecting(label+"=owned")) {
			lb["targets"] = []any{}
			for _, server := range s.all["servers"] {
				target(lb, idOf(server), true)
			}
		}
	})
}
