package hetzner

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

func TestQuote(t *testing.T) {
	s := hetznertest.NewEmpty()
	defer s.Close()
	orders := []Order{
		{Kind: KindServer, Count: 3, Type: "cx33", Location: "nbg1"}, {Kind: KindPrimaryIP, Count: 3, Type: "ipv4",
			Location: "nbg1"},
		{Kind: KindLoadBalancer, Count: 1, Type: "lb11", Location: "nbg1"}, {Kind: KindNetwork, Count: 1},
	}
	sum, err := Quote(t.Context(), s.Client(nil), orders)
	if err != nil || sum.String() != "24.00 EUR" || sum.Unknown {
		t.Errorf("together %+v, %v; 3 servers of 5, 3 addresses of 1 and a load balancer of 6 are 24", sum, err)
	}
	if orders[0].Price.String() != "15.00 EUR" || orders[3].Price.String() != "-" {
		t.Errorf("prices %+v", orders)
	}
	orders = append(orders, Order{Kind: KindSnapshot, Count: 1}, Order{Kind: KindServer, Count: 1, Type: "cx99",
		Location: "nbg1"})
	sum, err = Quote(t.Context(), s.Client(nil), orders)
	if err != nil || !sum.Unknown || sum.Monthly != 24 || orders[4].Each.Monthly != 0.01 || !orders[5].Price.Unknown {
		t.Errorf("with what has no monthly price: %+v, %v, %+v", sum, err, orders)
	}
	if w := s.Writes(); len(w) > 0 {
		t.Errorf("asking wrote %v", w)
	}
}

func TestQuoteWithoutPrices(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	orders := []Order{{Kind: KindServer, Count: 1, Type: "cx33", Location: "nbg1"}}
	c := hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	if sum, err := Quote(t.Context(), c, orders); err == nil || !sum.Unknown {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestMissing(t *testing.T) {
	orders := []Order{
		{Kind: KindServer, Count: 3, Name: "a"}, {Kind: KindServer, Count: 2, Name: "b"}, {Kind: KindPrimaryIP, Count: 5},
		{Kind: KindLoadBalancer, Count: 1}, {Kind: KindNetwork, Count: 1}, {Kind: KindSnapshot, Count: 1},
	}
	have := []Resource{
		{Kind: KindServer}, {Kind: KindServer}, {Kind: KindServer}, {Kind: KindServer}, {Kind: KindNetwork},
		{Kind: KindSnapshot},
		{Kind: KindLoadBalancer, labels: map[string]string{serviceLabel: "x"}},
	}
	got := Missing(orders, have)
	want := []Order{{Kind: KindServer, Count: 1, Name: "b"}, {Kind: KindPrimaryIP, Count: 1},
		{Kind: KindLoadBalancer, Count: 1}, {Kind: KindSnapshot, Count: 1}}
	if len(got) != len(want) {
		t.Fatalf("missing %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
