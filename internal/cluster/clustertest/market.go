package clustertest

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

// NewMarket is an empty project at a Hetzner that has what the defaults ask for.
func NewMarket(t *testing.T) *hetznertest.Server {
	t.Helper()
	s := hetznertest.NewEmpty()
	t.Cleanup(s.Close)
	s.Put("locations", 1, schema.Location{Name: "nbg1", NetworkZone: "eu-central"})
	s.Put("server_types", 1,
		schema.ServerType{Name: "cx33", Architecture: "x86", Prices: []schema.PricingServerTypePrice{{Location: "nbg1"}}})
	s.Put("load_balancer_types", 1, schema.LoadBalancerType{Name: "lb11", MaxTargets: 25, MaxServices: 5})
	return s
}
