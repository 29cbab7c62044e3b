package planning

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/platform"
)

func billOf(t *testing.T, s *hetznertest.Server, journal flow.Journal, kvs ...string) (orders.Bill, []string) {
	t.Helper()
	cfg := config.Defaults()
	for _, kv := range kvs {
		clustertest.Configure(t, &cfg, kv)
	}
	b, err := New(cfg, platform.Tools{Hetzner: s.Client(nil), Management: &clustertest.Provider{},
		Files: platform.FilesIn(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	foreseen, err := b.Plan.Graph.Predict(t.Context(), journal, b.Plan.All, false)
	if err != nil {
		t.Fatal(err)
	}
	bill, err := b.Bill(t.Context(), foreseen, nil)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, o := range bill.New {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%d %s %s %s", o.Count, o.Kind, o.Type, o.Price)))
	}
	if w := s.Writes(); len(w) > 0 {
		t.Errorf("it wrote %v", w)
	}
	return bill, lines
}

func TestBillOfEverything(t *testing.T) {
	bill, lines := billOf(t, clustertest.NewMarket(t), flow.Memory())
	want := []string{
		"1 load balancer lb11 6.00 EUR", "1 network  -", "1 placement group  -", "1 placement group  -",
		"3 server cx33 15.00 EUR", "3 primary IP ipv4 3.00 EUR", "1 primary IP ipv4 1.00 EUR",
		"1 firewall  -", "1 snapshot amd64 ?",
	}
	slices.Sort(want)
	slices.Sort(lines)
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
	if bill.Monthly.Monthly != 25 || !bill.Monthly.Unknown || len(bill.Notes) != 1 ||
		!strings.Contains(bill.Notes[0], "temporary server") {
		t.Errorf("%+v", bill)
	}
}

// What the cluster has is not made again, and what is another's does not count.
func TestBillLeavesOutWhatIsThere(t *testing.T) {
	s := clustertest.NewMarket(t)
	ours := map[string]string{"caph-cluster-k8s": "owned"}
	s.Put("servers", 11, schema.Server{Name: "k8s-control-plane-a", Labels: ours,
		ServerType: schema.ServerType{Name: "cx33"}})
	s.Put("servers", 12, schema.Server{Name: "k8s-control-plane-b", Labels: ours,
		ServerType: schema.ServerType{Name: "cx33"}})
	s.Put("servers", 13, schema.Server{Name: "other", Labels: map[string]string{"caph-cluster-other": "owned"}})
	s.Put("networks", 14, schema.Network{Name: "k8s", IPRange: "10.10.0.0/16", Labels: ours})
	s.Put("images", 15, hetznertest.Image(15, "talos-amd64-v1.13.9", "x86", "available"))
	bill, lines := billOf(t, s, flow.Memory(), "CONTROL_PLANE_REPLICAS=5")
	for _, want := range []string{"3 server cx33 15.00 EUR", "3 primary IP ipv4 3.00 EUR",
		"1 load balancer lb11 6.00 EUR"} {
		if !slices.Contains(lines, want) {
			t.Errorf("%q lacks %q", lines, want)
		}
	}
	for _, line := range lines {
		if strings.Contains(line, "network") || strings.Contains(line, "snapshot") {
			t.Errorf("%s is there already", line)
		}
	}
	if bill.Monthly.Unknown || bill.Monthly.Monthly != 24 {
		t.Errorf("%+v", bill.Monthly)
	}
}

// A claim on restoring the cluster is not the reservation of its name.
func TestBillTellsReservationFromRestoreClaim(t *testing.T) {
	for name, listed := range map[string]bool{"slipway-k8s": false, "slipway-k8s.restore": true} {
		s := clustertest.NewMarket(t)
		s.Put("placement_groups", 21,
			schema.PlacementGroup{Name: name, Type: "spread",
				Labels: map[string]string{"slipway-cluster": "k8s", "slipway-reserved-by": "somebody"}})
		bill, _ := billOf(t, s, flow.Memory())
		if is := slices.ContainsFunc(bill.New, func(o hetzner.Order) bool { return o.Name == "slipway-k8s" }); is != listed {
			t.Errorf("with %s there, the reservation is listed: %v; %+v", name, is, bill.New)
		}
	}
}
