package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// The address is in the HetznerCluster from the start, and CAPH is told which load balancer has it.
func TestEndpointIsAPrimaryIP(t *testing.T) {
	w := clustertest.New(t)
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Fatal(err)
	}
	live := w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
	if host, name := capi.Text(live, "spec", "controlPlaneEndpoint", "host"),
		capi.Text(live, "spec", "controlPlaneLoadBalancer", "name"); host != hetznertest.EndpointIP ||
		name != hetzner.EndpointName("k8s") {
		t.Errorf("the HetznerCluster names %q and load balancer %q", host, name)
	}
	ips, balancers := w.Hetzner.PrimaryIPs(), w.Hetzner.LoadBalancers()
	if len(ips) != 1 || len(balancers) != 1 {
		t.Fatalf("%d Primary IPs, %d load balancers", len(ips), len(balancers))
	}
	if !ips[0].Protection.Delete || ips[0].AutoDelete || ips[0].Labels[hetzner.OwnerLabel] != "k8s" {
		t.Errorf("the Primary IP is %+v", ips[0])
	}
	var ports []int
	for _, s := range balancers[0].Services {
		ports = append(ports, s.ListenPort)
		if check := s.HealthCheck; check == nil || check.Interval != 3 || check.Port != s.DestinationPort {
			t.Errorf("port %d: the health check is %+v, want one of the same port every 3 seconds", s.ListenPort, check)
		}
	}
	if !slices.Equal(ports, []int{6443, 50000}) || balancers[0].PublicNet.IPv4.IP != hetznertest.EndpointIP {
		t.Errorf("the load balancer at %s listens on %v", balancers[0].PublicNet.IPv4.IP, ports)
	}
}

// A load balancer that was deleted is created again at the same address, with the servers behind it, and everything
// else stays as it is.
func TestDeletedLoadBalancerIsCreatedAgain(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetServers(controlPlaneServers()...)
	w.Hetzner.SetLoadBalancers()
	before := len(w.Management.Writes()) + len(w.Workload.Writes())
	report, err := runPlan(t, w, w.Config(), journal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := ran(report); !slices.Equal(got, []string{"endpoint"}) {
		t.Errorf("ran %v", got)
	}
	if n := len(w.Management.Writes()) + len(w.Workload.Writes()); n != before {
		t.Errorf("%d requests changed something in the clusters", n-before)
	}
	balancers := w.Hetzner.LoadBalancers()
	if len(balancers) != 1 || balancers[0].PublicNet.IPv4.IP != hetznertest.EndpointIP || len(balancers[0].Targets) != 3 ||
		!balancers[0].Targets[0].UsePrivateIP {
		t.Errorf("the load balancers are %+v", balancers)
	}
	if n := len(w.Hetzner.PrimaryIPs()); n != 1 {
		t.Errorf("%d Primary IPs", n)
	}
}

func controlPlaneServers() (servers []schema.Server) {
	for i := range int64(3) {
		servers = append(servers, schema.Server{ID: 100 + i, Name: "k8s-control-plane-" + string(rune('0'+i)),
			Status: "running", PrivateNet: []schema.ServerPrivateNet{{IP: "10.10.64." + string(rune('2'+i))}},
			PublicNet: schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "127.0.1." + string(rune('0'+i))}},
			Labels:    map[string]string{"caph-cluster-k8s": "owned", "machine_type": "control_plane"}})
	}
	return servers
}

// What CAPH created in the meantime at another address is replaced; what is protected or another's is not.
func TestLoadBalancerThatCAPHCreatedIsReplaced(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetLoadBalancers(
		hetznertest.LoadBalancer(70, "k8s-kube-apiserver-a1b2c", "127.0.0.99", clustertest.OwnedByCAPH, 6443),
		hetznertest.LoadBalancer(71, "of-another", "127.0.0.98", map[string]string{}, 6443))
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, lb := range w.Hetzner.LoadBalancers() {
		at = append(at, lb.PublicNet.IPv4.IP)
	}
	if !slices.Equal(at, []string{"127.0.0.98", hetznertest.EndpointIP}) {
		t.Errorf("there are load balancers at %v", at)
	}
}

// A cluster that exists keeps its endpoint, whatever the configuration says now.
func TestExistingClusterKeepsItsEndpoint(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.ControlPlaneEndpoint = config.EndpointLoadBalancer
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	for what, j := range map[string]flow.Journal{"with the journal": journal, "without": flow.Memory()} {
		if _, err := runPlan(t, w, w.Config(), j, nil); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if ips := w.Hetzner.PrimaryIPs(); len(ips) != 0 || len(w.Hetzner.LoadBalancers()) != 1 {
		t.Errorf("with CONTROL_PLANE_ENDPOINT=primary-ip there are Primary IPs %+v and load balancers %+v", ips,
			w.Hetzner.LoadBalancers())
	}
	if live := w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace,
		"k8s"); capi.Text(live, "spec", "controlPlaneLoadBalancer", "name") != "" {
		t.Error("the HetznerCluster names a load balancer now")
	}
}

// What another owner has under the endpoint's names does not matter to a cluster that has its address by CAPH.
func TestAnotherOwnerBesideAnExistingCluster(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.ControlPlaneEndpoint = config.EndpointLoadBalancer
	w.Hetzner.SetPrimaryIPs(schema.PrimaryIP{ID: 7, Name: "k8s-control-plane", Type: "ipv4", IP: "127.0.0.50"})
	if _, err := runPlan(t, w, cfg, journal, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := runPlan(t, w, w.Config(), flow.Memory(), nil); err != nil {
		t.Errorf("as it is configured by default: %v", err)
	}
}

// What another owner has under the endpoint's names is refused, with the reason, before anything is created.
func TestEndpointOfAnotherOwner(t *testing.T) {
	another := int64(4711)
	ours := map[string]string{"slipway-cluster": "k8s", "slipway-role": "control-plane-endpoint"}
	for says, ip := range map[string]schema.PrimaryIP{
		"does not carry the labels": {ID: 7, Name: "k8s-control-plane", Type: "ipv4", IP: "127.0.0.50"},
		"is assigned to load_balancer 47": {ID: 7, Name: "x", Type: "ipv4", IP: "127.0.0.50", Labels: ours,
			AssigneeID: &another, AssigneeType: "load_balancer"},
	} {
		w := clustertest.New(t)
		w.Hetzner.SetPrimaryIPs(ip)
		_, err := runPlan(t, w, w.Config(), flow.Memory(), nil)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
		if len(w.Hetzner.LoadBalancers()) != 0 || len(w.Hetzner.PrimaryIPs()) != 1 {
			t.Error("something was created")
		}
	}
}

// A Primary IP of the cluster that something else has is refused also where the cluster exists, and the journal keeps
// what it is.
func TestEndpointAssignedToAnother(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	if _, err := runPlan(t, w, w.Config(), journal, nil); err != nil {
		t.Fatal(err)
	}
	w.Hetzner.SetServers(controlPlaneServers()...)
	w.Hetzner.SetLoadBalancers()
	another, ip := int64(4711), w.Hetzner.PrimaryIPs()[0]
	ip.AssigneeID, ip.AssigneeType = &another, "server"
	w.Hetzner.SetPrimaryIPs(ip)
	for what, j := range map[string]flow.Journal{"with the journal": journal, "without": flow.Memory()} {
		if _, err := runPlan(t, w, w.Config(), j, nil); err == nil ||
			!strings.Contains(err.Error(), "is assigned to server 4711") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A host name stands in the endpoint once it resolves to the address, which the operator is told before.
func TestEndpointByHostName(t *testing.T) {
	w := clustertest.New(t)
	cfg := w.Config()
	cfg.ControlPlaneEndpoint = "api.example.com"
	tools := w.Tools()
	asked := 0
	tools.LookupHost = func(context.Context, string) ([]string, error) {
		if asked++; asked == 1 {
			return nil, errors.New("no such host")
		}
		return []string{hetznertest.EndpointIP}, nil
	}
	plan, err := New(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	var said []string
	_, err = clustertest.Run(t, plan.Graph, plan.Bootstrap, journal, func(e flow.Event) {
		said = append(said, e.Message)
	})
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(said, "\n"); !strings.Contains(all, "api.example.com A "+hetznertest.EndpointIP) {
		t.Errorf("the operator is not told which record to create:\n%s", all)
	}
	live := w.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
	if host := capi.Text(live, "spec", "controlPlaneEndpoint", "host"); host != "api.example.com" {
		t.Errorf("the HetznerCluster names %s", host)
	}
	cluster, _, err := flow.Restore(t.Context(), journal, plan.Cluster)
	if err != nil || cluster.LoadBalancerIP != hetznertest.EndpointIP || cluster.Endpoint != "api.example.com:6443" {
		t.Errorf("the cluster is at %s, %s (%v)", cluster.LoadBalancerIP, cluster.Endpoint, err)
	}
}
