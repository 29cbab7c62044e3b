package hetznertest

import (
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// New starts a project of a Hetzner that sells cx33, cx43 and cax21 in nbg1, lb11 and lb21, and takes no other token
// than Token.
func New() *Server {
	s := NewEmpty()
	s.onlyToken = true
	set(s, "locations", []schema.Location{location(1, "nbg1"), location(2, "fsn1")})
	set(s, "server_types", []schema.ServerType{serverType(1, "cx33", "x86", 80, "0.008"),
		serverType(2, "cax21", "arm", 80, "0.009"), serverType(3, "cx43", "x86", 160, "0.014")})
	set(s, "load_balancer_types", balancerTypes())
	return s
}

// NewProject starts a project to create images in. It sells cx23, cx33 and cx43 (x86), cax11 and cax21 (arm) in nbg1.
func NewProject() *Server {
	s := NewEmpty()
	s.made = 100
	retired := serverType(6, "cx22", "x86", 40, "0.001")
	retired.Deprecation = &schema.DeprecationInfo{Announced: time.Now(), UnavailableAfter: time.Now().Add(time.Hour)}
	set(s, "locations", []schema.Location{location(1, "nbg1")})
	set(s, "server_types", []schema.ServerType{serverType(1, "cx33", "x86", 80, "0.008"),
		serverType(2, "cx43", "x86", 160, "0.014"), serverType(3, "cx23", "x86", 40, "0.005"),
		serverType(4, "cax21", "arm", 80, "0.009"), serverType(5, "cax11", "arm", 40, "0.006"), retired})
	set(s, "load_balancer_types", balancerTypes()[:1])
	return s
}

// NewSelling starts an empty project of a Hetzner that sells cx33, cpx32 and cax21 in nbg1, fsn1 and hel1 of
// eu-central, cx33 and cpx32 also in ash of us-east, and lb11. Of the server types that are named nothing is in stock
// in the location that is named ("cx33 nbg1").
func NewSelling(out ...string) *Server {
	s := NewEmpty()
	s.Sell(out...)
	return s
}

// Sell replaces what is out of stock.
func (s *Server) Sell(out ...string) {
	places := []string{"nbg1", "fsn1", "hel1", "ash"}
	for i, name := range places {
		at := location(int64(i+1), name)
		if name == "ash" {
			at.NetworkZone = "us-east"
		}
		s.Put("locations", at.ID, at)
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
		s.Put("server_types", kind.ID, kind)
	}
	s.Put("load_balancer_types", 1, balancerTypes()[0])
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

func location(id int64, name string) schema.Location {
	return schema.Location{ID: id, Name: name, NetworkZone: "eu-central"}
}

// serverType is sold in nbg1.
func serverType(id int64, name, architecture string, disk int, price string) schema.ServerType {
	return schema.ServerType{ID: id, Name: name, Architecture: architecture, Disk: disk,
		Prices: []schema.PricingServerTypePrice{{Location: "nbg1", PriceHourly: schema.Price{Net: price}}}}
}

func balancerTypes() []schema.LoadBalancerType {
	return []schema.LoadBalancerType{{ID: 1, Name: "lb11", MaxTargets: 25, MaxServices: 5},
		{ID: 2, Name: "lb21", MaxTargets: 75, MaxServices: 15}}
}

// priceList has round prices in nbg1: 5 EUR a cx33, 9 a cx43, 6 an lb11, 16 an lb21, 0.05 a GB of volume, 0.01 a GB of
// snapshot, 1 an IPv4.
func priceList() schema.Pricing {
	price := func(gross string) schema.Price { return schema.Price{Net: gross, Gross: gross} }
	server := func(id int64, name, monthly string) schema.PricingServerType {
		return schema.PricingServerType{ID: id, Name: name, Prices: []schema.PricingServerTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price(monthly)}}}
	}
	balancer := func(id int64, name, monthly string) schema.PricingLoadBalancerType {
		return schema.PricingLoadBalancerType{ID: id, Name: name, Prices: []schema.PricingLoadBalancerTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price(monthly)}}}
	}
	return schema.Pricing{
		Currency:          "EUR",
		Image:             schema.PricingImage{PricePerGBMonth: price("0.01")},
		Volume:            schema.PricingVolume{PricePerGBPerMonth: price("0.05")},
		ServerTypes:       []schema.PricingServerType{server(1, "cx33", "5.0000"), server(3, "cx43", "9.0000")},
		LoadBalancerTypes: []schema.PricingLoadBalancerType{balancer(1, "lb11", "6.0000"), balancer(2, "lb21", "16.0000")},
		PrimaryIPs: []schema.PricingPrimaryIP{{Type: "ipv4", Prices: []schema.PricingPrimaryIPTypePrice{
			{Location: "nbg1", PriceHourly: price("0.01"), PriceMonthly: price("1.0000")}}}},
	}
}
