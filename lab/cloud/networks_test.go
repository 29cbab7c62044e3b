package cloud

import (
	"fmt"
	"net"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func cidr(text string) *net.IPNet {
	_, parsed, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return parsed
}

func TestNetworkSubnetsAndRoutes(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.network()
	if got := one.Subnets[0].Gateway.String(); got != "127.40.0.1" {
		t.Errorf("the subnet's gateway is %s, not the network's first address", got)
	}
	add := func(text string, zone hcloud.NetworkZone) (*hcloud.Action, *hcloud.Response, error) {
		return w.Network.AddSubnet(ctx, one,
			hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, IPRange: cidr(text),
				NetworkZone: zone}})
	}
	w.done(must[*hcloud.Action](t)(add("127.40.65.0/24", hcloud.NetworkZoneUSEast)))
	for _, text := range []string{"127.40.64.64/26", "127.41.0.0/24", "127.40.66.0/31"} {
		_, _, err := add(text, hcloud.NetworkZoneEUCentral)
		wants(t, "invalid_input", err)
	}
	_, _, err := add("127.40.66.0/24", "mars")
	wants(t, "invalid_input", err)
	w.done(must[*hcloud.Action](t)(w.Network.AddSubnet(ctx, one,
		hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud,
			NetworkZone: hcloud.NetworkZoneEUCentral}})))

	route := hcloud.NetworkRoute{Destination: cidr("127.40.128.0/24"), Gateway: net.ParseIP("127.40.64.1")}
	w.done(must[*hcloud.Action](t)(w.Network.AddRoute(ctx, one, hcloud.NetworkAddRouteOpts{Route: route})))
	for _, wrong := range []hcloud.NetworkRoute{
		route,
		{Destination: cidr("127.40.64.0/24"), Gateway: route.Gateway},
		{Destination: cidr("127.40.129.0/24"), Gateway: net.ParseIP("127.40.0.1")},
		{Destination: cidr("127.40.129.0/24"), Gateway: net.ParseIP("127.99.0.1")},
	} {
		_, _, err := w.Network.AddRoute(ctx, one, hcloud.NetworkAddRouteOpts{Route: wrong})
		wants(t, "invalid_input", err)
	}
	one = must[*hcloud.Network](t)(w.Network.GetByName(ctx, "net"))
	if len(one.Subnets) != 3 || one.Subnets[2].IPRange.String() != "127.40.0.0/24" || len(one.Routes) != 1 {
		t.Errorf("the network is %+v", one)
	}
	w.done(must[*hcloud.Action](t)(w.Network.DeleteRoute(ctx, one, hcloud.NetworkDeleteRouteOpts{Route: route})))
	_, _, err = w.Network.DeleteRoute(ctx, one, hcloud.NetworkDeleteRouteOpts{Route: route})
	wants(t, "not_found", err)
	w.done(must[*hcloud.Action](t)(w.Network.DeleteSubnet(ctx, one,
		hcloud.NetworkDeleteSubnetOpts{Subnet: one.Subnets[1]})))

	_, _, err = w.Network.ChangeIPRange(ctx, one, hcloud.NetworkChangeIPRangeOpts{IPRange: cidr("127.40.0.0/17")})
	wants(t, "invalid_input", err)
	w.done(must[*hcloud.Action](t)(w.Network.ChangeIPRange(ctx, one,
		hcloud.NetworkChangeIPRangeOpts{IPRange: cidr("127.40.0.0/15")})))
	one = must[*hcloud.Network](t)(w.Network.Update(ctx, one,
		hcloud.NetworkUpdateOpts{Name: "renamed", ExposeRoutesToVSwitch: hcloud.Ptr(true)}))
	if one.IPRange.String() != "127.40.0.0/15" || !one.ExposeRoutesToVSwitch || one.Name != "renamed" {
		t.Errorf("the network is %+v", one)
	}
}

func TestNetworkInUse(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	one := w.network()
	member := w.server("one", func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{one} })
	balancer := must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Network: one,
	})).LoadBalancer
	one = must[*hcloud.Network](t)(w.Network.GetByID(ctx, one.ID))
	if len(one.Servers) != 1 || len(one.LoadBalancers) != 1 {
		t.Errorf("the network has servers %v and load balancers %v", one.Servers, one.LoadBalancers)
	}
	_, _, err := w.Network.DeleteSubnet(ctx, one, hcloud.NetworkDeleteSubnetOpts{Subnet: one.Subnets[0]})
	wants(t, "resource_in_use", err)
	_, err = w.Network.Delete(ctx, one)
	wants(t, "resource_in_use", err)
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.DetachFromNetwork(ctx, balancer,
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: one})))

	w.done(must[*hcloud.Action](t)(w.Network.ChangeProtection(ctx, one,
		hcloud.NetworkChangeProtectionOpts{Delete: hcloud.Ptr(true)})))
	_, err = w.Network.Delete(ctx, one)
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.Network.ChangeProtection(ctx, one,
		hcloud.NetworkChangeProtectionOpts{Delete: hcloud.Ptr(false)})))
	if _, err := w.Network.Delete(ctx, one); err != nil {
		t.Fatal(err)
	}
	member = must[*hcloud.Server](t)(w.Server.GetByID(ctx, member.ID))
	if len(member.PrivateNet) != 0 {
		t.Errorf("after the network's end the server is attached to %+v", member.PrivateNet)
	}
	eventually(t, "the machine is notified", func() bool { return w.machines.history() == "start one, addresses one 0" })
}

func TestAddressesInNetworks(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	tiny := must[*hcloud.Network](t)(w.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "tiny", IPRange: cidr("127.40.0.0/24"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: cidr("127.40.0.0/29"),
			NetworkZone: hcloud.NetworkZoneEUCentral}},
	}))
	in := func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{tiny} }
	for i := 2; i <= 6; i++ { // .1 is the gateway, .0 and .7 are not addresses of hosts
		one := w.server(fmt.Sprintf("s%d", i), in)
		if got, want := one.PrivateNet[0].IP.String(), fmt.Sprintf("127.40.0.%d", i); got != want {
			t.Errorf("the address is %s, not %s", got, want)
		}
	}
	last := w.server("last", nil)
	_, _, err := w.Server.AttachToNetwork(ctx, last, hcloud.ServerAttachToNetworkOpts{Network: tiny})
	wants(t, "no_subnet_available", err)
	for _, taken := range []string{"127.40.0.3", "127.40.0.1", "127.40.0.99"} {
		_, _, err := w.Server.AttachToNetwork(ctx, last,
			hcloud.ServerAttachToNetworkOpts{Network: tiny, IP: net.ParseIP(taken)})
		wants(t, "ip_not_available", err)
	}
	// The network has a subnet in Europe only.
	_, _, err = w.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "far", ServerType: &hcloud.ServerType{Name: "cpx11"}, Image: &hcloud.Image{Name: "debian-12"},
		Location: &hcloud.Location{Name: "ash"}, Networks: []*hcloud.Network{tiny},
	})
	wants(t, "no_subnet_available", err)
}
