package cloud

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// TestConformanceIsChecked verifies that the check behind all other tests can fail.
func TestConformanceIsChecked(t *testing.T) {
	request := func(method, path string) *http.Request {
		return (&http.Request{Method: method, URL: &url.URL{Path: "/v1" + path}}).WithContext(t.Context())
	}
	for name, test := range map[string]struct {
		method, path string
		status       int
		kind, body   string
	}{
		"a missing property":     {"GET", "/locations/1", 200, "application/json", `{"location":{"id":1,"name":"nbg1"}}`},
		"null for an object":     {"GET", "/load_balancers/1", 200, "application/json", `{"load_balancer":null}`},
		"a status that is none":  {"DELETE", "/networks/1", 202, "application/json", `{}`},
		"another content type":   {"GET", "/locations/1", 404, "text/plain", `{"error":{"code":"not_found","message":"x"}}`},
		"an error without code":  {"GET", "/locations/1", 404, "application/json", `{"error":{"message":"x"}}`},
		"an unknown operation":   {"PATCH", "/locations", 200, "application/json", `{}`},
		"a server without place": {"GET", "/servers/1", 200, "application/json", `{"server":{"id":1}}`},
	} {
		reply := &http.Response{StatusCode: test.status, Header: http.Header{"Content-Type": {test.kind}}}
		if conforms(APIFebruary2026, request(test.method, test.path), reply, []byte(test.body)) == nil {
			t.Errorf("%s conforms", name)
		}
	}
	fine := &http.Response{StatusCode: 404, Header: http.Header{"Content-Type": {"application/json"}}}
	err := conforms(APIFebruary2026, request("GET", "/locations/9"), fine, []byte(`{"error":{"code":"not_found","message":"x"}}`))
	if err != nil {
		t.Errorf("an error of the API does not conform: %v", err)
	}
}

// TestListsConform requests every list and every action list with at least one item.
func TestListsConform(t *testing.T) {
	for _, api := range APIs() {
		t.Run(string(api), func(t *testing.T) { listsConform(t, api) })
	}
}

func listsConform(t *testing.T, api API) {
	w := newHarness(t, func(c *Config) { c.API = api })
	ctx := t.Context()
	network := w.network()
	server := w.server("one", func(o *hcloud.ServerCreateOpts) { o.Networks = []*hcloud.Network{network} })
	lb := w.balanced(network)
	w.aim(lb, server, true)
	must[hcloud.FirewallCreateResult](t)(w.Firewall.Create(ctx, hcloud.FirewallCreateOpts{
		Name: "wall",
		ApplyTo: []hcloud.FirewallResource{{Type: hcloud.FirewallResourceTypeServer,
			Server: &hcloud.FirewallResourceServer{ID: server.ID}}},
	}))
	must[hcloud.VolumeCreateResult](t)(w.Volume.Create(ctx,
		hcloud.VolumeCreateOpts{Name: "data", Size: 10, Server: server}))
	must[hcloud.PlacementGroupCreateResult](t)(w.PlacementGroup.Create(ctx,
		hcloud.PlacementGroupCreateOpts{Name: "group", Type: hcloud.PlacementGroupTypeSpread}))
	for _, path := range []string{
		"/networks", "/load_balancers", "/servers", "/images", "/placement_groups", "/ssh_keys", "/firewalls", "/primary_ips",
		"/volumes",
		"/locations", "/datacenters", "/server_types", "/load_balancer_types", "/certificates", "/floating_ips", "/isos",
		"/networks/actions", "/load_balancers/actions", "/servers/actions", "/images/actions", "/firewalls/actions",
		"/primary_ips/actions", "/volumes/actions",
		"/servers/" + idText(server.ID) + "/actions", "/load_balancers/" + idText(lb.ID) + "/actions",
		"/networks/" + idText(network.ID) + "/actions",
	} {
		want := http.StatusOK
		if path == "/datacenters" && api == APINovember2026 {
			want = http.StatusGone
		}
		if status, body := w.raw(http.MethodGet, path, ""); status != want {
			t.Errorf("GET %s → %d %s", path, status, body)
		}
	}
}
