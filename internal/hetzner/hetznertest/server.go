// Package hetznertest is a part of the Hetzner Cloud API in memory, for tests: it answers reads, and keeps firewalls
// and placement groups.
package hetznertest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
)

// Token is the one that the server takes.
const Token = "planted-token-of-the-tests"

// Server is the API. It sells cx33 and cax21 in nbg1, and nothing else unless a test adds it.
type Server struct {
	*httptest.Server
	mu       sync.Mutex
	images   []schema.Image
	networks []schema.Network
	servers  []schema.Server
	lbs      []schema.LoadBalancer
	walls    []schema.Firewall
	groups   []schema.PlacementGroup
	requests []string
}

// New starts a server on loopback.
func New() *Server {
	s := &Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	return s
}

// Client speaks to the server with a token. It does not retry.
func (s *Server) Client(token string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithToken(token),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
}

// SetImages replaces the images.
func (s *Server) SetImages(images ...schema.Image) { s.set(func() { s.images = images }) }

// SetNetworks replaces the networks.
func (s *Server) SetNetworks(networks ...schema.Network) { s.set(func() { s.networks = networks }) }

// SetServers replaces the servers.
func (s *Server) SetServers(servers ...schema.Server) { s.set(func() { s.servers = servers }) }

// SetLoadBalancers replaces the load balancers.
func (s *Server) SetLoadBalancers(balancers ...schema.LoadBalancer) {
	s.set(func() { s.lbs = balancers })
}

// LoadBalancer is one at a public address, that listens on some ports.
func LoadBalancer(id int64, name, ip string, labels map[string]string, ports ...int) schema.LoadBalancer {
	lb := schema.LoadBalancer{ID: id, Name: name, Labels: labels}
	lb.PublicNet.Enabled, lb.PublicNet.IPv4.IP = true, ip
	for _, p := range ports {
		lb.Services = append(lb.Services, schema.LoadBalancerService{Protocol: "tcp", ListenPort: p, DestinationPort: p})
	}
	return lb
}

func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Writes lists the requests so far that were not GET.
func (s *Server) Writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.requests), func(r string) bool { return strings.HasPrefix(r, http.MethodGet) })
}

// Image is a snapshot with the label that CAPH looks for.
func Image(id int64, name, architecture, status string) schema.Image {
	return schema.Image{ID: id, Type: "snapshot", Status: status, Architecture: architecture,
		Labels: map[string]string{"caph-image-name": name, "os": "talos"}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	if r.Header.Get("Authorization") != "Bearer "+Token {
		reply(w, http.StatusUnauthorized, schema.ErrorResponse{Error: schema.Error{Code: "unauthorized",
			Message: "unable to authenticate"}})
		return
	}
	nbg1 := schema.Location{ID: 1, Name: "nbg1", NetworkZone: "eu-central"}
	serverType := func(id int64, name, architecture string) schema.ServerType {
		return schema.ServerType{ID: id, Name: name, Architecture: architecture,
			Prices: []schema.PricingServerTypePrice{{Location: "nbg1"}}}
	}
	q := r.URL.Query()
	named := func(name string) bool { return q.Get("name") == "" || q.Get("name") == name }
	chosen := func(of map[string]string) bool { return matches(q.Get("label_selector"), of) }
	switch r.URL.Path {
	case "/locations":
		all := []schema.Location{nbg1, {ID: 2, Name: "fsn1", NetworkZone: "eu-central"}}
		reply(w, http.StatusOK, map[string]any{"locations": keep(all, func(l schema.Location) bool { return named(l.Name) })})
	case "/server_types":
		all := []schema.ServerType{serverType(1, "cx33", "x86"), serverType(2, "cax21", "arm"), serverType(3, "cx43", "x86")}
		reply(w, http.StatusOK, map[string]any{"server_types": keep(all,
			func(t schema.ServerType) bool { return named(t.Name) })})
	case "/load_balancer_types":
		all := []schema.LoadBalancerType{{ID: 1, Name: "lb11", MaxTargets: 25, MaxServices: 5},
			{ID: 2, Name: "lb21", MaxTargets: 75, MaxServices: 15}}
		reply(w, http.StatusOK, map[string]any{"load_balancer_types": keep(all,
			func(t schema.LoadBalancerType) bool { return named(t.Name) })})
	case "/pricing":
		reply(w, http.StatusOK, map[string]any{"pricing": priceList()})
	case "/images":
		reply(w, http.StatusOK, map[string]any{"images": keep(s.images, func(i schema.Image) bool {
			name := ""
			if i.Name != nil {
				name = *i.Name
			}
			return named(name) && chosen(i.Labels) && (q.Get("architecture") == "" || q.Get("architecture") == i.Architecture)
		})})
	case "/networks":
		reply(w, http.StatusOK, map[string]any{"networks": keep(s.networks,
			func(n schema.Network) bool { return chosen(n.Labels) })})
	case "/ssh_keys", "/volumes", "/primary_ips":
		// what makes some works with a Project or a Store
		reply(w, http.StatusOK, map[string]any{strings.TrimPrefix(r.URL.Path, "/"): []any{}})
	case "/load_balancers":
		reply(w, http.StatusOK, map[string]any{"load_balancers": keep(s.lbs,
			func(lb schema.LoadBalancer) bool { return chosen(lb.Labels) })})
	case "/servers":
		reply(w, http.StatusOK, map[string]any{"servers": keep(s.servers,
			func(v schema.Server) bool { return chosen(v.Labels) })})
	default:
		if strings.HasPrefix(r.URL.Path, "/firewalls") {
			s.serveFirewalls(w, r, named, chosen)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/placement_groups") {
			s.servePlacementGroups(w, r, named, chosen)
			return
		}
		reply(w, http.StatusNotFound, schema.ErrorResponse{Error: schema.Error{Code: "not_found", Message: r.URL.Path}})
	}
}

// matches knows every selector; one that is none selects nothing.
func matches(selector string, of map[string]string) bool {
	parsed, err := labels.Parse(selector)
	return err == nil && parsed.Matches(labels.Set(of))
}

func keep[T any](all []T, want func(T) bool) []T {
	kept := []T{}
	for _, v := range all {
		if want(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}
