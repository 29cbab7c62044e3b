package cloud

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// address creates a Primary IPv4 in nbg1.
func (w *harness) address(name string) *hcloud.PrimaryIP {
	w.t.Helper()
	return must[*hcloud.PrimaryIPCreateResult](w.t)(w.PrimaryIP.Create(w.t.Context(), hcloud.PrimaryIPCreateOpts{
		Name: name, Type: hcloud.PrimaryIPTypeIPv4, Location: "nbg1", AutoDelete: hcloud.Ptr(false),
	})).PrimaryIP
}

func balancerAt(name string, ip *hcloud.PrimaryIP) hcloud.LoadBalancerCreateOpts {
	return hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: ip},
	}
}

// A Primary IP keeps its load balancer's address: another load balancer gets it once the deletion of the first is done.
func TestALoadBalancerHasAPrimaryIP(t *testing.T) {
	slow := InstantLatency()
	slow.Actions = map[string]Span{"delete_load_balancer": {time.Second, time.Second}}
	w := newHarness(t, func(c *Config) { c.Latency = slow })
	ctx := t.Context()
	ip := w.address("endpoint")
	w.done(must[*hcloud.Action](t)(w.PrimaryIP.ChangeProtection(ctx,
		hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: true})))
	first := must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, balancerAt("one", ip))).LoadBalancer
	if !first.PublicNet.IPv4.IP.Equal(ip.IP) {
		t.Errorf("the load balancer has %s, not %s", first.PublicNet.IPv4.IP, ip.IP)
	}
	is := must[*hcloud.PrimaryIP](t)(w.PrimaryIP.GetByID(ctx, ip.ID))
	if is.AssigneeID != first.ID || is.AssigneeType != "load_balancer" {
		t.Errorf("the address is assigned to %s %d", is.AssigneeType, is.AssigneeID)
	}
	_, err := w.PrimaryIP.Delete(ctx, ip)
	wants(t, "protected", err)
	w.done(must[*hcloud.Action](t)(w.PrimaryIP.ChangeProtection(ctx,
		hcloud.PrimaryIPChangeProtectionOpts{ID: ip.ID, Delete: false})))
	_, err = w.PrimaryIP.Delete(ctx, ip)
	wants(t, "must_be_unassigned", err)
	_, _, err = w.LoadBalancer.Create(ctx, balancerAt("two", ip))
	wants(t, "primary_ip_already_assigned", err)

	deletion := must[hcloud.LoadBalancerDeleteResult](t)(w.LoadBalancer.DeleteWithResult(ctx, first))
	if still := must[*hcloud.LoadBalancer](t)(w.LoadBalancer.GetByID(ctx, first.ID)); still == nil {
		t.Error("the load balancer is gone before its deletion is done")
	}
	_, _, err = w.LoadBalancer.DeleteWithResult(ctx, first)
	wants(t, "locked", err)
	w.done(deletion.Action)
	if gone := must[*hcloud.LoadBalancer](t)(w.LoadBalancer.GetByID(ctx, first.ID)); gone != nil {
		t.Error("the load balancer is there after its deletion is done")
	}
	again := must[hcloud.LoadBalancerCreateResult](t)(w.LoadBalancer.Create(ctx, balancerAt("two", ip))).LoadBalancer
	if !again.PublicNet.IPv4.IP.Equal(ip.IP) {
		t.Errorf("the second load balancer has %s, not %s", again.PublicNet.IPv4.IP, ip.IP)
	}
}

func TestALoadBalancerRefusesAPrimaryIP(t *testing.T) {
	w := newHarness(t)
	ctx := t.Context()
	elsewhere := balancerAt("one", w.address("a"))
	elsewhere.Location = &hcloud.Location{Name: "fsn1"}
	_, _, err := w.LoadBalancer.Create(ctx, elsewhere)
	wants(t, "invalid_input", err)
	_, _, err = w.LoadBalancer.Create(ctx, balancerAt("one", &hcloud.PrimaryIP{ID: 99}))
	wants(t, "invalid_input", err)
	six := must[*hcloud.PrimaryIPCreateResult](t)(w.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
		Name: "six", Type: hcloud.PrimaryIPTypeIPv6, Location: "nbg1"})).PrimaryIP
	_, _, err = w.LoadBalancer.Create(ctx, balancerAt("one", six))
	wants(t, "invalid_input", err)
}

// A token that may only read is refused with the code of its time.
func TestAReadOnlyTokenWritesNothing(t *testing.T) {
	for api, code := range map[API]string{APIFebruary2026: "token_readonly", APINovember2026: "forbidden"} {
		w := newHarness(t, func(c *Config) { c.API, c.ReadOnlyToken = api, "read-only" })
		reader := w.client("read-only")
		if _, err := reader.Location.All(t.Context()); err != nil {
			t.Errorf("%s: it cannot read: %v", api, err)
		}
		_, _, err := reader.PlacementGroup.Create(t.Context(),
			hcloud.PlacementGroupCreateOpts{Name: "one", Type: hcloud.PlacementGroupTypeSpread})
		wants(t, code, err)
	}
}

// Programs of early 2026 find what they expect where the lab has the API of that time.
func TestTheAPIOfFebruary2026(t *testing.T) {
	w := newHarness(t, func(c *Config) { c.API = APIFebruary2026 })
	w.server("one", nil)
	if status, body := w.raw(http.MethodGet, "/servers", ""); status != http.StatusOK ||
		!strings.Contains(body, `"datacenter":{"id"`) {
		t.Errorf("a server has no datacenter: %d %s", status, body)
	}
	network := w.network()
	lb := w.balanced(network)
	if status, body := w.raw(http.MethodDelete, "/load_balancers/"+idText(lb.ID), ""); status != http.StatusNoContent {
		t.Errorf("deleting a load balancer answers %d %s", status, body)
	}
}

// Images and load balancer types tell when they are withdrawn; until 2026 only that they are to be.
func TestDeprecations(t *testing.T) {
	announced, last := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	for api, told := range map[API]bool{APIFebruary2026: false, APINovember2026: true} {
		w := newHarness(t, func(c *Config) { c.API = api })
		ctx := t.Context()
		for _, one := range w.cloud.catalog.loadBalancerTypes {
			if one.Name == "lb31" {
				one.retired = &schema.DeprecationInfo{Announced: announced, UnavailableAfter: last}
			}
		}
		lb := must[*hcloud.LoadBalancerType](t)(w.LoadBalancerType.GetByName(ctx, "lb31"))
		if lb.IsDeprecated() != told || told && !lb.UnavailableAfter().Equal(last) {
			t.Errorf("%s: lb31 is %+v", api, lb.Deprecation)
		}
		if _, body := w.raw(http.MethodGet, "/load_balancer_types?name=lb31", ""); !strings.Contains(body,
			`"deprecated":"2026-08-01T00:00:00Z"`) {
			t.Errorf("%s: %s", api, body)
		}
		if lb = must[*hcloud.LoadBalancerType](t)(w.LoadBalancerType.GetByName(ctx, "lb11")); lb.IsDeprecated() {
			t.Errorf("%s: lb11 is %+v", api, lb.Deprecation)
		}
		old := must[*hcloud.Image](t)(w.Image.GetForArchitecture(ctx, "debian-11", hcloud.ArchitectureX86))
		if old == nil || old.IsDeprecated() != told {
			t.Fatalf("%s: debian-11 is %+v", api, old)
		}
		if _, body := w.raw(http.MethodGet, "/images?name=debian-11&include_deprecated=true", ""); !strings.Contains(body,
			`"deprecated":"2026-08-31T00:00:00Z"`) {
			t.Errorf("%s: %s", api, body)
		}
		listed, err := w.Image.AllWithOpts(ctx, hcloud.ImageListOpts{Type: []hcloud.ImageType{hcloud.ImageTypeSystem}})
		if err != nil || len(listed) == 0 {
			t.Fatal(listed, err)
		}
		for _, one := range listed {
			if one.Name == old.Name {
				t.Errorf("%s: %s is listed, and nobody asked for deprecated ones", api, one.Name)
			}
		}
	}
}
