package etcdview

import (
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/talos"
)

// RoutesTo are the routes to a server's Talos: through the load balancer, and straight to its own addresses, which a
// firewall or the lack of a route may close.
func RoutesTo(s hetzner.Server, balancers []string) (routes []talos.Route) {
	for _, private := range s.Private {
		for _, b := range balancers {
			routes = append(routes, talos.Route{Endpoint: b, Node: private.String()})
		}
	}
	if s.Public.IsValid() {
		routes = append(routes, talos.Route{Endpoint: s.Public.String()})
	}
	for _, private := range s.Private {
		routes = append(routes, talos.Route{Endpoint: private.String()})
	}
	return routes
}
