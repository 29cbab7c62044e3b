package cloud

import (
	"net"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TestCAPHsCalls sends the requests of Cluster API's provider for a cluster's whole life, in its order: it never waits
// for an action.
func TestCAPHsCalls(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	ctx := t.Context()
	w.machines.serve = apiPort
	if err := w.cloud.EnsureSnapshot("talos", "amd64"); err != nil {
		t.Fatal(err)
	}
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	byLabel := hcloud.ListOpts{LabelSelector: "caph-cluster-k8s==owned"}

	if found := must[[]*hcloud.Network](t)(w.Network.List(ctx, hcloud.NetworkListOpts{ListOpts: byLabel})); len(found) !=
		0 {
		t.Fatalf("an empty project has networks %v", found)
	}
	network := must[*hcloud.Network](t)(w.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: "k8s", IPRange: cidr("127.40.0.0/16"), Labels: owned,
		Subnets: []hcloud.NetworkSubnet{{IPRange: cidr("127.40.64.0/25"), NetworkZone: hcloud.NetworkZoneEUCentral,
			Type: hcloud.NetworkSubnetTypeCloud}},
	}))
	must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "k8s-kube-apiserver-x1y2z", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
		Location:  &hcloud.Location{Name: "nbg1"},
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin}, Network: network,
		Labels:          owned,
		PublicInterface: hcloud.Ptr(true),
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(6443), DestinationPort: hcloud.Ptr(apiPort),
		}},
	}))
	lb := must[[]*hcloud.LoadBalancer](t)(w.LoadBalancer.List(ctx, hcloud.LoadBalancerListOpts{ListOpts: byLabel}))[0]
	if len(lb.PrivateNet) != 1 {
		t.Error("the load balancer is not attached, and CAPH would attach it again")
	}
	must[*hcloud.Action](t)(w.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(50000), DestinationPort: hcloud.Ptr(50000),
	}))
	group := must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
		Name: "k8s-control-plane", Type: hcloud.PlacementGroupTypeSpread, Labels: owned,
	})).PlacementGroup

	var servers []*hcloud.Server
	for _, name := range []string{"k8s-cp-aaaaa", "k8s-cp-bbbbb", "k8s-cp-ccccc"} {
		labels := map[string]string{"caph-cluster-k8s": "owned", "machine.caph-name": name, "machine_type": "control_plane"}
		mine := hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "caph-cluster-k8s==owned,machine.caph-name==" +
			name + ",machine_type==control_plane"}}
		if found := must[[]*hcloud.Server](t)(w.Server.List(ctx, mine)); len(found) != 0 {
			t.Fatalf("a server is there before it is made: %v", found)
		}
		kind := must[*hcloud.ServerType](t)(w.ServerType.GetByName(ctx, "cx33"))
		images := must[[]*hcloud.Image](t)(w.Image.List(ctx, hcloud.ImageListOpts{
			ListOpts:     hcloud.ListOpts{LabelSelector: "caph-image-name==talos"},
			Architecture: []hcloud.Architecture{kind.Architecture},
		}))
		named := must[[]*hcloud.Image](t)(w.Image.List(ctx,
			hcloud.ImageListOpts{Name: "talos", Architecture: []hcloud.Architecture{kind.Architecture}}))
		if images = append(images, named...); len(images) != 1 {
			t.Fatalf("%d images match", len(images))
		}
		must[[]*hcloud.SSHKey](t)(w.SSHKey.List(ctx, hcloud.SSHKeyListOpts{}))
		must[hcloud.ServerCreateResult](t)(w.Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: name, Labels: labels, Image: images[0], Location: &hcloud.Location{Name: "nbg1"}, ServerType: kind,
			StartAfterCreate: hcloud.Ptr(true), Automount: hcloud.Ptr(false), UserData: "machine configuration",
			PlacementGroup: group,
			PublicNet:      &hcloud.ServerCreatePublicNet{EnableIPv4: true, EnableIPv6: true},
			Networks:       []*hcloud.Network{network},
		}))
		eventually(t, name+" runs", func() bool {
			found := must[[]*hcloud.Server](t)(w.Server.List(ctx, mine))
			return len(found) == 1 && found[0].Status == hcloud.ServerStatusRunning
		})
		one := must[[]*hcloud.Server](t)(w.Server.List(ctx, mine))[0]
		servers = append(servers, one)
		_, _, err := w.Server.AttachToNetwork(ctx, one, hcloud.ServerAttachToNetworkOpts{Network: network})
		wants(t, "server_already_attached", err) // CAPH tolerates it
		target := hcloud.LoadBalancerAddServerTargetOpts{Server: one, UsePrivateIP: hcloud.Ptr(true)}
		must[*hcloud.Action](t)(w.LoadBalancer.AddServerTarget(ctx, lb, target))
		_, _, err = w.LoadBalancer.AddServerTarget(ctx, lb, target)
		wants(t, "target_already_defined", err) // this too
	}
	eventually(t, "the load balancer finds all three healthy", func() bool {
		return w.cloud.LoadBalancers()[0].Services[0].Healthy == 3
	})
	if heard, err := say(net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "6443"), ""); err != nil || heard == "" {
		t.Errorf("the cluster's endpoint answers %q, %v", heard, err)
	}

	for _, one := range servers {
		must[*hcloud.Action](t)(w.LoadBalancer.RemoveServerTarget(ctx, lb, one))
		must[*hcloud.Action](t)(w.Server.Shutdown(ctx, one))
		must[*hcloud.ServerDeleteResult](t)(w.Server.DeleteWithResult(ctx, one))
	}
	for _, remove := range []func() (*hcloud.Response, error){
		func() (*hcloud.Response, error) {
			_, response, err := w.LoadBalancer.DeleteWithResult(ctx, lb)
			return response, err
		},
		func() (*hcloud.Response, error) { return w.Network.Delete(ctx, network) },
		func() (*hcloud.Response, error) { return w.PlacementGroup.Delete(ctx, group) },
	} {
		var err error
		eventually(t, "what the servers used can be deleted", func() bool {
			_, err = remove()
			return err == nil || !hcloud.IsError(err, hcloud.ErrorCodeResourceInUse)
		})
		if err != nil {
			t.Error(err)
		}
	}
	eventually(t, "nothing is left", func() bool {
		addresses := must[[]*hcloud.PrimaryIP](t)(w.PrimaryIP.List(ctx, hcloud.PrimaryIPListOpts{}))
		return len(w.cloud.Servers()) == 0 && len(addresses) == 0
	})
}

// TestCloudControllerManagersCalls sends the requests of the cloud controller manager: its token check, nodes by
// provider id and by name, routes, and a load balancer for a Service.
func TestCloudControllerManagersCalls(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	network := w.network()
	node := w.server("node", func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{network} })

	must[[]*hcloud.Location](t)(w.Location.List(ctx, hcloud.LocationListOpts{}))
	if found := must[*hcloud.Network](t)(w.Network.Get(ctx, "net")); found == nil || found.ID != network.ID {
		t.Errorf("the network by its name is %+v", found)
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByName(ctx, "node")); found == nil || found.ID != node.ID ||
		found.Location.NetworkZone != hcloud.NetworkZoneEUCentral {
		t.Errorf("the node by its name is %+v", found)
	}
	if found := must[*hcloud.Server](t)(w.Server.GetByID(ctx, 7)); found != nil {
		t.Errorf("a node that does not exist is %+v", found)
	}

	route := hcloud.NetworkRoute{Destination: cidr("127.40.128.0/24"), Gateway: node.PrivateNet[0].IP}
	w.done(must[*hcloud.Action](t)(w.Network.AddRoute(ctx, network, hcloud.NetworkAddRouteOpts{Route: route})))
	if network = must[*hcloud.Network](t)(w.Network.GetByID(ctx, network.ID)); len(network.Routes) != 1 {
		t.Errorf("the routes are %v", network.Routes)
	}
	w.done(must[*hcloud.Action](t)(w.Network.DeleteRoute(ctx, network, hcloud.NetworkDeleteRouteOpts{Route: route})))

	made := must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "a1b2c3", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Labels: map[string]string{"hcloud-ccm/service-uid": "5d1c"},
	}))
	w.done(made.Action)
	lb := must[*hcloud.LoadBalancer](t)(w.LoadBalancer.GetByID(ctx, made.LoadBalancer.ID))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AttachToNetwork(ctx, lb,
		hcloud.LoadBalancerAttachToNetworkOpts{Network: network})))
	w.aim(lb, node, true)
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(80), DestinationPort: hcloud.Ptr(30080),
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{Protocol: hcloud.LoadBalancerServiceProtocolTCP,
			Port: hcloud.Ptr(30080)},
	})))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.UpdateService(ctx, lb, 80,
		hcloud.LoadBalancerUpdateServiceOpts{DestinationPort: hcloud.Ptr(30081)})))
	found := must[[]*hcloud.LoadBalancer](t)(w.LoadBalancer.List(ctx,
		hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: "hcloud-ccm/service-uid=5d1c"}}))
	if len(found) != 1 || found[0].Services[0].DestinationPort != 30081 || found[0].Services[0].HealthCheck.Port != 30080 {
		t.Errorf("the Service's load balancer is %+v", found)
	}
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.DeleteService(ctx, lb, 80)))
	w.done(must[hcloud.LoadBalancerDeleteResult](t)(w.LoadBalancer.DeleteWithResult(ctx, lb)).Action)
}
