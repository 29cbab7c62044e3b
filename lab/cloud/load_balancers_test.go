package cloud

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// say sends a word and returns the answer.
func say(addr, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return "", err
	}
	fmt.Fprint(conn, word)
	_ = conn.(*net.TCPConn).CloseWrite()
	heard, err := io.ReadAll(conn)
	return string(heard), err
}

func refused(addr string) bool {
	_, err := say(addr, "")
	return errors.Is(err, syscall.ECONNREFUSED)
}

const apiPort = 36443 // of the machines that the load balancers forward to

// balanced creates a load balancer in the network that forwards 6443 to the machines.
func (w *harness) balanced(network *hcloud.Network) *hcloud.LoadBalancer {
	w.t.Helper()
	made := must[hcloud.LoadBalancerCreateResult](w.t)(w.LoadBalancer.Create(w.t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Network:   network,
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin},
		Services: []hcloud.LoadBalancerCreateOptsService{{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(6443), DestinationPort: hcloud.Ptr(apiPort),
		}},
	}))
	w.done(made.Action)
	return made.LoadBalancer
}

func (w *harness) aim(lb *hcloud.LoadBalancer, to *hcloud.Server, private bool) {
	w.t.Helper()
	w.done(must[*hcloud.Action](w.t)(w.LoadBalancer.AddServerTarget(w.t.Context(), lb,
		hcloud.LoadBalancerAddServerTargetOpts{Server: to, UsePrivateIP: &private})))
}

// health is the health of the first target for the first service.
func (w *harness) health(lb *hcloud.LoadBalancer) string {
	w.t.Helper()
	lb = must[*hcloud.LoadBalancer](w.t)(w.LoadBalancer.GetByID(w.t.Context(), lb.ID))
	if len(lb.Targets) == 0 || len(lb.Targets[0].HealthStatus) == 0 {
		return "none"
	}
	return string(lb.Targets[0].HealthStatus[0].Status)
}

func TestLoadBalancerForwardsToHealthyTargetsOnly(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	ctx := t.Context()
	w.machines.serve = apiPort
	network := w.network()
	lb := w.balanced(network)
	public := net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "6443")
	private := net.JoinHostPort(lb.PrivateNet[0].IP.String(), "6443")
	if public != "127.41.2.1:6443" || private != "127.40.64.1:6443" {
		t.Errorf("the load balancer is at %s and %s", public, private)
	}
	if !refused(public) || !refused(private) {
		t.Error("a load balancer without targets takes connections")
	}

	attach := func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{network} }
	one := w.server("one", attach)
	w.aim(lb, one, true)
	eventually(t, "both addresses forward", func() bool {
		a, _ := say(public, "hello")
		b, _ := say(private, "you")
		return a == "one heard hello" && b == "one heard you"
	})
	if got := w.health(lb); got != "healthy" {
		t.Errorf("the target is %s", got)
	}
	if seen := w.cloud.LoadBalancers()[0].Services[0]; !seen.Listening || seen.Healthy != 1 || seen.Targets != 1 {
		t.Errorf("the lab's status shows %+v", seen)
	}

	w.done(must[*hcloud.Action](t)(w.Server.Poweroff(ctx, one)))
	eventually(t, "connections are refused again", func() bool { return refused(public) && refused(private) })
	if got := w.health(lb); got != "unhealthy" {
		t.Errorf("the target that is off is %s", got)
	}
	w.done(must[*hcloud.Action](t)(w.Server.Poweron(ctx, one)))
	two := w.server("two", attach)
	w.aim(lb, two, true)
	eventually(t, "both servers get connections", func() bool {
		first, _ := say(public, "")
		second, _ := say(public, "")
		return strings.HasPrefix(first+second, "one heard two") || strings.HasPrefix(first+second, "two heard one")
	})

	w.done(must[*hcloud.Action](t)(w.LoadBalancer.RemoveServerTarget(ctx, lb, one)))
	_, _, err := w.LoadBalancer.RemoveServerTarget(ctx, lb, one)
	wants(t, "invalid_input", err)
	for range 3 {
		if heard, err := say(public, ""); err != nil || heard != "two heard " {
			t.Errorf("a removed target is still in use: %q, %v", heard, err)
		}
	}
	w.done(must[*hcloud.ServerDeleteResult](t)(w.Server.DeleteWithResult(ctx, two)).Action)
	lb = must[*hcloud.LoadBalancer](t)(w.LoadBalancer.GetByID(ctx, lb.ID))
	if len(lb.Targets) != 0 || !refused(public) {
		t.Errorf("after the server's end the targets are %+v", lb.Targets)
	}
	w.done(must[hcloud.LoadBalancerDeleteResult](t)(w.LoadBalancer.DeleteWithResult(ctx, lb)).Action)
}

func TestLoadBalancerEndsConnectionsOfRemovedTargets(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	w.machines.serve = apiPort
	lb := w.balanced(nil)
	one := w.server("one", nil)
	w.aim(lb, one, false)
	var conn net.Conn
	eventually(t, "the load balancer listens", func() (ok bool) {
		var err error
		conn, err = net.Dial("tcp", net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "6443"))
		return err == nil
	})
	defer conn.Close()
	fmt.Fprint(conn, "begun")
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.RemoveServerTarget(t.Context(), lb, one)))
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, syscall.ETIMEDOUT) ||
		strings.Contains(err.Error(), "timeout") {
		t.Errorf("the open connection continues: %v", err)
	}
}

func TestLoadBalancerSelectorAndIPTargets(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	ctx := t.Context()
	w.machines.serve = apiPort
	lb := w.balanced(nil)
	public := net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), "6443")
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddLabelSelectorTarget(ctx, lb,
		hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=cp"})))
	one := w.server("born-later", func(o *hcloud.ServerCreateOpts) { o.Labels = map[string]string{"role": "cp"} })
	eventually(t, "a server born later is a target", func() bool {
		heard, _ := say(public, "")
		return heard == "born-later heard "
	})
	lb = must[*hcloud.LoadBalancer](t)(w.LoadBalancer.GetByID(ctx, lb.ID))
	if members := lb.Targets[0].Targets; len(members) != 1 || members[0].Server.Server.ID != one.ID ||
		members[0].HealthStatus[0].Status != "healthy" {
		t.Errorf("the selected targets are %+v", members)
	}
	one = must[*hcloud.Server](t)(w.Server.GetByID(ctx, one.ID))
	if len(one.LoadBalancers) != 1 {
		t.Errorf("the server's load balancers are %v", one.LoadBalancers)
	}
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.RemoveLabelSelectorTarget(ctx, lb, "role=cp")))

	for ip, code := range map[string]string{"192.0.2.1": "ip_not_owned",
		one.PublicNet.IPv4.IP.String(): "cloud_resource_ip_not_allowed"} {
		_, _, err := w.LoadBalancer.AddIPTarget(ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP(ip)})
		wants(t, code, err)
	}
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddIPTarget(ctx, lb,
		hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("127.42.0.1")})))
	if got := w.health(lb); got == "healthy" {
		t.Error("an address where nothing listens is healthy")
	}
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.RemoveIPTarget(ctx, lb, net.ParseIP("127.42.0.1"))))
}

func TestLoadBalancerHTTPHealthCheck(t *testing.T) {
	needsLoopback(t)
	w := newHarness(t)
	ctx := t.Context()
	ready := make(chan struct{})
	listener, err := listen(ctx, "127.42.0.9:0")
	if err != nil {
		t.Fatal(err)
	}
	app := &httptest.Server{Listener: listener,
		Config: &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			select {
			case <-ready:
				fmt.Fprintf(rw, "%s ok", r.Host)
			default:
				rw.WriteHeader(http.StatusServiceUnavailable)
			}
		})}}
	app.Start()
	defer app.Close()
	port := int(netip.MustParseAddrPort(listener.Addr().String()).Port())
	lb := w.balanced(nil)
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddIPTarget(ctx, lb,
		hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("127.42.0.9")})))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.UpdateService(ctx, lb, 6443, hcloud.LoadBalancerUpdateServiceOpts{
		DestinationPort: &port,
		HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: &port,
			HTTP: &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{Domain: hcloud.Ptr("app.example"),
				Path: hcloud.Ptr("/healthz"), Response: hcloud.Ptr("app.example ok"), StatusCodes: []string{"2??"}},
		},
	})))
	eventually(t, "the answer 503 is unhealthy", func() bool { return w.health(lb) == "unhealthy" })
	close(ready)
	eventually(t, "the answer 200 is healthy", func() bool { return w.health(lb) == "healthy" })
}

func TestLoadBalancerRequestsThatAreRefused(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	network := w.network()
	lb := w.balanced(network)
	loose := w.server("loose", nil)
	inside := w.server("inside", func(o *hcloud.ServerCreateOpts) {
		o.Networks = []*hcloud.Network{network}
		o.PublicNet = &hcloud.ServerCreatePublicNet{}
	})
	add := func(lb *hcloud.LoadBalancer, to *hcloud.Server, private bool) error {
		_, _, err := w.LoadBalancer.AddServerTarget(ctx, lb,
			hcloud.LoadBalancerAddServerTargetOpts{Server: to, UsePrivateIP: &private})
		return err
	}
	wants(t, "server_not_attached_to_network", add(lb, loose, true))
	wants(t, "missing_ipv4", add(lb, inside, false))
	w.aim(lb, inside, true)
	wants(t, "target_already_defined", add(lb, inside, true))
	wants(t, "invalid_input", add(lb, &hcloud.Server{ID: 7}, true))

	tcp := hcloud.LoadBalancerServiceProtocolTCP
	for name, test := range map[string]struct {
		opts hcloud.LoadBalancerAddServiceOpts
		code string
	}{
		"a port in use": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp, ListenPort: hcloud.Ptr(6443),
			DestinationPort: hcloud.Ptr(1)}, "source_port_already_used"},
		"no port": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp}, "invalid_input"},
		"TLS": {hcloud.LoadBalancerAddServiceOpts{Protocol: hcloud.LoadBalancerServiceProtocolHTTPS,
			ListenPort: hcloud.Ptr(443)}, "invalid_input"},
		"PROXY protocol": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp, ListenPort: hcloud.Ptr(1),
			DestinationPort: hcloud.Ptr(1), Proxyprotocol: hcloud.Ptr(true)}, "invalid_input"},
		"an eager check": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp, ListenPort: hcloud.Ptr(1),
			DestinationPort: hcloud.Ptr(1), HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{Protocol: tcp,
				Interval: hcloud.Ptr(time.Second)}}, "invalid_input"},
		"an endless check": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp, ListenPort: hcloud.Ptr(1),
			DestinationPort: hcloud.Ptr(1), HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{Protocol: tcp,
				Timeout: hcloud.Ptr(time.Minute)}}, "invalid_input"},
		"too many attempts": {hcloud.LoadBalancerAddServiceOpts{Protocol: tcp, ListenPort: hcloud.Ptr(1),
			DestinationPort: hcloud.Ptr(1), HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{Protocol: tcp,
				Retries: hcloud.Ptr(9)}}, "invalid_input"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := w.LoadBalancer.AddService(ctx, lb, test.opts)
			wants(t, test.code, err)
		})
	}
	_, _, err := w.LoadBalancer.DeleteService(ctx, lb, 7)
	wants(t, "invalid_input", err)
	_, _, err = w.LoadBalancer.AttachToNetwork(ctx, lb, hcloud.LoadBalancerAttachToNetworkOpts{Network: network})
	wants(t, "load_balancer_already_attached", err)
	_, _, err = w.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{Type: "dice"})
	wants(t, "invalid_input", err)

	fine := hcloud.LoadBalancerCreateOpts{Name: "other", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
		NetworkZone: hcloud.NetworkZoneEUCentral}
	for name, change := range map[string]func(*hcloud.LoadBalancerCreateOpts){
		"no such type": func(o *hcloud.LoadBalancerCreateOpts) {
			o.LoadBalancerType = &hcloud.LoadBalancerType{Name: "lb99"}
		},
		"no place":      func(o *hcloud.LoadBalancerCreateOpts) { o.NetworkZone = "" },
		"no such place": func(o *hcloud.LoadBalancerCreateOpts) { o.NetworkZone = "mars" },
		"no network":    func(o *hcloud.LoadBalancerCreateOpts) { o.Network = &hcloud.Network{ID: 7} },
	} {
		opts := fine
		change(&opts)
		if _, _, err := w.LoadBalancer.Create(ctx, opts); err == nil {
			t.Errorf("a load balancer with %s is made", name)
		}
	}
	other := must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, fine)).LoadBalancer
	wants(t, "load_balancer_not_attached_to_network", add(other, inside, true))
	_, _, err = w.LoadBalancer.DisablePublicInterface(ctx, other)
	wants(t, "load_balancer_not_attached_to_network", err)
	fine.Name = "lb"
	_, _, err = w.LoadBalancer.Create(ctx, fine)
	wants(t, "uniqueness_error", err)
}

func TestLoadBalancerActions(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	network := w.network()
	lb := w.balanced(nil)
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AttachToNetwork(ctx, lb,
		hcloud.LoadBalancerAttachToNetworkOpts{Network: network, IP: net.ParseIP("127.40.64.9")})))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.DisablePublicInterface(ctx, lb)))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.ChangeAlgorithm(ctx, lb,
		hcloud.LoadBalancerChangeAlgorithmOpts{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections})))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.ChangeType(ctx, lb,
		hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb21"}})))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.ChangeDNSPtr(ctx, lb, lb.PublicNet.IPv4.IP.String(),
		hcloud.Ptr("lb.example"))))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddService(ctx, lb,
		hcloud.LoadBalancerAddServiceOpts{Protocol: hcloud.LoadBalancerServiceProtocolHTTP})))
	for port := 1001; port <= 1005; port++ {
		w.done(must[*hcloud.Action](t)(w.LoadBalancer.AddService(ctx, lb,
			hcloud.LoadBalancerAddServiceOpts{Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &port})))
	}
	_, _, err := w.LoadBalancer.ChangeType(ctx, lb,
		hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}})
	wants(t, "invalid_load_balancer_type", err)
	lb = must[*hcloud.LoadBalancer](t)(w.LoadBalancer.Update(ctx, lb,
		hcloud.LoadBalancerUpdateOpts{Name: "renamed", Labels: map[string]string{"a": "b"}}))
	switch {
	case lb.PublicNet.Enabled, lb.PrivateNet[0].IP.String() != "127.40.64.9",
		lb.Algorithm.Type != hcloud.LoadBalancerAlgorithmTypeLeastConnections,
		lb.LoadBalancerType.Name != "lb21", lb.PublicNet.IPv4.DNSPtr != "lb.example", len(lb.Services) != 7,
		lb.Name != "renamed":
		t.Errorf("the load balancer is %+v", lb)
	case lb.Services[1].HTTP.CookieName != "HCLBSTICKY" || lb.Services[1].ListenPort != 80 ||
		lb.Services[2].DestinationPort != 1001 || lb.Services[2].HealthCheck.Interval != 15*time.Second:
		t.Errorf("its services are %+v", lb.Services)
	}
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.DeleteService(ctx, lb, 80)))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.EnablePublicInterface(ctx, lb)))
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.ChangeProtection(ctx, lb,
		hcloud.LoadBalancerChangeProtectionOpts{Delete: hcloud.Ptr(true)})))
	_, _, err = w.LoadBalancer.DeleteWithResult(ctx, lb)
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.LoadBalancer.ChangeProtection(ctx, lb,
		hcloud.LoadBalancerChangeProtectionOpts{Delete: hcloud.Ptr(false)})))
	status, body := w.raw(http.MethodDelete, "/load_balancers/"+strconv.FormatInt(lb.ID, 10), "")
	if status != http.StatusCreated {
		t.Errorf("deleting a load balancer answers %d %s", status, body)
	}
}

func TestLeastConnectionsPrefersTheIdle(t *testing.T) {
	f := newForwarder(frontendKey{}, listen, nil)
	f.front.leastConnections = true
	for i, active := range []int{3, 1, 2} {
		ip := netip.AddrFrom4([4]byte{127, 42, 0, byte(i)})
		f.backends[ip] = &backend{ip: ip, status: healthHealthy, active: active}
	}
	for range 4 {
		var order []int
		for _, one := range f.candidates() {
			order = append(order, one.active)
		}
		if fmt.Sprint(order) != "[1 2 3]" {
			t.Errorf("backends are tried in the order %v", order)
		}
	}
}
