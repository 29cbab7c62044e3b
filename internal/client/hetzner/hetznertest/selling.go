package hetznertest

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// NewSelling starts an empty project of a Hetzner that sells cx33, cpx32 and cax21 in nbg1, fsn1 and hel1 of
// eu-central, cx33 and cpx32 also in ash of us-east, and lb11. Of the server types that are named nothing is in stock
// in the location that is named ("cx33 nbg1").
func NewSelling(out ...string) *Store {
	s := NewStore()
	s.Sell(out...)
	return s
}

// Sell replaces what is out of stock.
func (s *Store) Sell(out ...string) {
	places := []string{"nbg1", "fsn1", "hel1", "ash"}
	for i, name := range places {
		zone := "eu-central"
		if name == "ash" {
			zone = "us-east"
		}
		s.Put("locations", int64(i+1), schema.Location{ID: int64(i + 1), Name: name, NetworkZone: zone})
	}
	for i, name := range []string{"cx33", "cpx32", "cax21"} {
		kind := schema.ServerType{ID: int64(i + 1), Name: name, Architecture: "x86"}
		if name == "cax21" {
			kind.Architecture = "arm"
		}
		for _, l := range places {
			if name == "cax21" && l == "ash" {
				continue
			}
			kind.Prices = append(kind.Prices, schema.PricingServerTypePrice{Location: l})
			kind.Locations = append(kind.Locations, schema.ServerTypeLocation{Name: l,
				Available: !slices.Contains(out, name+" "+l)})
		}
		s.Put("server_types", int64(i+1), kind)
	}
	s.Put("load_balancer_types", 1, schema.LoadBalancerType{ID: 1, Name: "lb11", MaxTargets: 25, MaxServices: 5})
}
