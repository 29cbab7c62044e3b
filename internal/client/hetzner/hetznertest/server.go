// Package hetznertest is a part of the Hetzner Cloud API in memory, for tests: it answers reads, and keeps firewalls
// and placement groups.
package hetznertest

import (
	"net/http"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Server is the API. It sells cx33 and cax21 in nbg1, and nothing else unless a test adds it.
type Server struct {
	api

	images   []schema.Image
	networks []schema.Network
	servers  []schema.Server
	lbs      []schema.LoadBalancer
	walls    []schema.Firewall
	groups   []schema.PlacementGroup
	ips      []schema.PrimaryIP

	addresses int // Primary IPs that were created so far
}

// New starts a server on loopback.
func New() *Server {
	s := &Server{}
	s.start(s.serve)
	return s
}

// Client speaks to the server with a token. It does not retry.
func (s *Server) Client(token string) *hcloud.Client {
	return hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithToken(token),
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
}

// SetImages replaces the images.
func (s *Server) SetImages(images ...schema.Image) { s.between(func() { s.images = images }) }

// SetNetworks replaces the networks.
func (s *Server) SetNetworks(networks ...schema.Network) { s.between(func() { s.networks = networks }) }

// SetServers replaces the servers.
func (s *Server) SetServers(servers ...schema.Server) { s.between(func() { s.servers = servers }) }

// SetLoadBalancers replaces the load balancers.
func (s *Server) SetLoadBalancers(balancers ...schema.LoadBalancer) {
	s.between(func() {
		s.lbs = balancers
		s.unassign()
	})
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

// Image is a snapshot with the label that CAPH looks for.
func Image(id int64, name, architecture, status string) schema.Image {
	return schema.Image{ID: id, Type: "snapshot", Status: status, Architecture: architecture,
		Labels: map[string]string{"caph-image-name": name, "os": "talos"}}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+Token {
		refuse(w, http.StatusUnauthorized, "unauthorized", "unable to authenticate")
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
	case "/primary_ips":
		if r.Method == http.MethodPost {
			s.serveEndpoint(w, r)
			return
		}
		reply(w, http.StatusOK, map[string]any{"primary_ips": keep(s.ips,
			func(ip schema.PrimaryIP) bool { return named(ip.Name) && chosen(ip.Labels) })})
	case "/ssh_keys", "/volumes":
		// what makes some works with a Project or a Store
		reply(w, http.StatusOK, map[string]any{strings.TrimPrefix(r.URL.Path, "/"): []any{}})
	case "/load_balancers":
		if r.Method == http.MethodPost {
			s.serveEndpoint(w, r)
			return
		}
		reply(w, http.StatusOK, map[string]any{"load_balancers": keep(s.lbs,
			func(lb schema.LoadBalancer) bool { return chosen(lb.Labels) })})
	case "/servers":
		reply(w, http.StatusOK, map[string]any{"servers": keep(s.servers,
			func(v schema.Server) bool { return chosen(v.Labels) })})
	default:
		if strings.HasPrefix(r.URL.Path, "/primary_ips/") || strings.HasPrefix(r.URL.Path, "/load_balancers/") {
			s.serveEndpoint(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/firewalls") {
			s.serveFirewalls(w, r, named, chosen)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/placement_groups") {
			s.servePlacementGroups(w, r, named, chosen)
			return
		}
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	}
}
