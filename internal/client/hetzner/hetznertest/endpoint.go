package hetznertest

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// EndpointIP is the address of the first Primary IP that is created; the next ones follow it.
const EndpointIP = "127.0.0.9"

// PrimaryIPs are the Primary IPs at present.
func (s *Server) PrimaryIPs() (all []schema.PrimaryIP) {
	s.between(func() { all = slices.Clone(s.ips) })
	return all
}

// SetPrimaryIPs replaces the Primary IPs.
func (s *Server) SetPrimaryIPs(ips ...schema.PrimaryIP) { s.between(func() { s.ips = ips }) }

// LoadBalancers are the load balancers at present.
func (s *Server) LoadBalancers() (all []schema.LoadBalancer) {
	s.between(func() { all = slices.Clone(s.lbs) })
	return all
}

// OwnLoadBalancer gives a load balancer a label, as CAPH does when it adopts one.
func (s *Server) OwnLoadBalancer(name, label string) {
	s.between(func() {
		for i := range s.lbs {
			if s.lbs[i].Name == name {
				s.lbs[i].Labels[label] = "owned"
			}
		}
	})
}

// TargetServers makes all servers targets of the load balancers with a label, as CAPH does.
func (s *Server) TargetServers(label string) {
	s.between(func() {
		for i := range s.lbs {
			if s.lbs[i].Labels[label] != "owned" {
				continue
			}
			s.lbs[i].Targets = nil
			for _, server := range s.servers {
				s.lbs[i].Targets = append(s.lbs[i].Targets, schema.LoadBalancerTarget{Type: "server",
					Server: &schema.LoadBalancerTargetServer{ID: server.ID}, UsePrivateIP: true})
			}
		}
	})
}

// serveEndpoint answers requests that change Primary IPs and load balancers. Every action is done at once.
func (s *Server) serveEndpoint(w http.ResponseWriter, r *http.Request) {
	words := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	done := schema.Action{ID: 1, Status: "success", Progress: 100}
	var id int64
	if len(words) > 1 {
		id, _ = strconv.ParseInt(words[1], 10, 64)
	}
	switch {
	case r.URL.Path == "/primary_ips" && r.Method == http.MethodPost:
		s.createPrimaryIP(w, r)
	case r.URL.Path == "/load_balancers" && r.Method == http.MethodPost:
		s.createLoadBalancer(w, r, done)
	case words[0] == "primary_ips" && len(words) == 4 && words[3] == "change_protection":
		var body schema.PrimaryIPActionChangeProtectionRequest
		at := slices.IndexFunc(s.ips, func(ip schema.PrimaryIP) bool { return ip.ID == id })
		if at < 0 || !decode(w, r, &body) {
			refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
			return
		}
		s.ips[at].Protection.Delete = body.Delete
		reply(w, http.StatusCreated, map[string]any{"action": done})
	case words[0] == "load_balancers" && len(words) == 4 && words[3] == "add_target":
		var body schema.LoadBalancerActionAddTargetRequest
		at := slices.IndexFunc(s.lbs, func(lb schema.LoadBalancer) bool { return lb.ID == id })
		if at < 0 || !decode(w, r, &body) {
			refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
			return
		}
		s.lbs[at].Targets = append(s.lbs[at].Targets, schema.LoadBalancerTarget{Type: "server",
			Server: &schema.LoadBalancerTargetServer{ID: body.Server.ID}, UsePrivateIP: *body.UsePrivateIP})
		reply(w, http.StatusCreated, map[string]any{"action": done})
	case words[0] == "load_balancers" && len(words) == 2 && r.Method == http.MethodDelete:
		s.lbs = slices.DeleteFunc(s.lbs, func(lb schema.LoadBalancer) bool { return lb.ID == id })
		s.unassign()
		reply(w, http.StatusCreated, map[string]any{"action": done})
	default:
		refuse(w, http.StatusNotFound, "not_found", r.URL.Path)
	}
}

// unassign makes Primary IPs free whose load balancer is gone.
func (s *Server) unassign() {
	for i := range s.ips {
		id := s.ips[i].AssigneeID
		if id != nil && !slices.ContainsFunc(s.lbs, func(lb schema.LoadBalancer) bool { return lb.ID == *id }) {
			s.ips[i].AssigneeID = nil
		}
	}
}

func (s *Server) createPrimaryIP(w http.ResponseWriter, r *http.Request) {
	var body schema.PrimaryIPCreateRequest
	if !decode(w, r, &body) {
		return
	}
	if slices.ContainsFunc(s.ips, func(ip schema.PrimaryIP) bool { return ip.Name == body.Name }) {
		refuse(w, http.StatusConflict, "uniqueness_error", "name is already used")
		return
	}
	s.addresses++
	ip := schema.PrimaryIP{ID: int64(500 + s.addresses), Name: body.Name, Type: body.Type, Labels: *body.Labels,
		IP: fmt.Sprintf("127.0.0.%d", 8+s.addresses), Location: schema.Location{ID: 1, Name: body.Location}}
	s.ips = append(s.ips, ip)
	reply(w, http.StatusCreated, map[string]any{"primary_ip": ip})
}

func (s *Server) createLoadBalancer(w http.ResponseWriter, r *http.Request, done schema.Action) {
	var body schema.LoadBalancerCreateRequest
	if !decode(w, r, &body) {
		return
	}
	lb := LoadBalancer(int64(600+len(s.lbs)+s.addresses), body.Name, "127.0.0.200", *body.Labels)
	if slices.ContainsFunc(s.lbs, func(other schema.LoadBalancer) bool { return other.Name == body.Name }) {
		refuse(w, http.StatusConflict, "uniqueness_error", "name is already used")
		return
	}
	for _, service := range body.Services {
		made := schema.LoadBalancerService{Protocol: service.Protocol, ListenPort: *service.ListenPort,
			DestinationPort: *service.DestinationPort}
		if check := service.HealthCheck; check != nil {
			made.HealthCheck = &schema.LoadBalancerServiceHealthCheck{Protocol: check.Protocol, Port: *check.Port,
				Interval: *check.Interval, Timeout: *check.Timeout, Retries: *check.Retries}
		}
		lb.Services = append(lb.Services, made)
	}
	if body.PublicNet != nil && body.PublicNet.IPv4 != 0 {
		for i := range s.ips {
			if s.ips[i].ID == body.PublicNet.IPv4 {
				s.ips[i].AssigneeID, s.ips[i].AssigneeType = &lb.ID, "load_balancer"
				lb.PublicNet.IPv4.IP = s.ips[i].IP
			}
		}
	}
	s.lbs = append(s.lbs, lb)
	reply(w, http.StatusCreated, map[string]any{"load_balancer": lb, "action": done})
}
