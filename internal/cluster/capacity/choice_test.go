package capacity_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
)

// sells is a project at a Hetzner that has nothing in stock of what is named ("cx33 nbg1").
func sells(t *testing.T, out ...string) (*hetznertest.Server, *hcloud.Client) {
	t.Helper()
	s := hetznertest.NewSelling(out...)
	t.Cleanup(s.Close)
	return s, s.Client(nil)
}

func wants(types, locations, spread string) config.Config {
	c := config.Defaults()
	c.ServerType, c.Location, c.Spread = types, locations, spread
	return c
}

func TestTheFirstServerTypeInStockIsChosenInTheFirstLocationThatHasIt(t *testing.T) {
	for what, tt := range map[string]struct {
		types, locations, spread string
		out                      []string
		kind, in, passed         string
	}{
		"all in stock":                {"cx33,cpx32", "nbg1,fsn1", "host", nil, "cx33", "nbg1", ""},
		"another location":            {"cx33,cpx32", "nbg1,fsn1", "host", []string{"cx33 nbg1"}, "cx33", "fsn1", "cx33 is out of stock in nbg1"},
		"another type":                {"cx33,cpx32", "nbg1", "host", []string{"cx33 nbg1"}, "cpx32", "nbg1", "cx33 is out of stock in nbg1"},
		"another architecture":        {"cx33,cpx32,cax21", "nbg1", "host", []string{"cx33 nbg1", "cpx32 nbg1"}, "cax21", "nbg1", "cx33 is out of stock in nbg1; cpx32 is out of stock in nbg1"},
		"a location that matters not": {"cx33", "nbg1,fsn1", "host", []string{"cx33 fsn1"}, "cx33", "nbg1", ""},
		"not sold there":              {"cax21", "ash,nbg1", "host", nil, "cax21", "nbg1", "cax21 is not sold in ash"},
		"the only one, out of stock":  {"cx33", "nbg1", "host", []string{"cx33 nbg1"}, "cx33", "nbg1", ""},
		"spread":                      {"cx33", "nbg1,fsn1,hel1", "location", nil, "cx33", "nbg1 fsn1 hel1", ""},
		"spread over what has it":     {"cx33", "nbg1,fsn1,hel1", "location", []string{"cx33 nbg1"}, "cx33", "fsn1 hel1", "cx33 is out of stock in nbg1"},
		"spread needs two":            {"cx33,cpx32", "nbg1,fsn1", "location", []string{"cx33 nbg1"}, "cpx32", "nbg1 fsn1", "cx33 is out of stock in nbg1"},
	} {
		_, c := sells(t, tt.out...)
		got, err := capacity.Choose(t.Context(), c, wants(tt.types, tt.locations, tt.spread))
		if err != nil || got.ServerType != tt.kind || strings.Join(got.Locations, " ") != tt.in ||
			strings.Join(got.Passed, "; ") != tt.passed || got.Location != got.Locations[0] || got.NetworkZone != "eu-central" ||
			got.Architecture != map[bool]string{true: "arm64", false: "amd64"}[tt.kind == "cax21"] {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestNothingInStockNamesEachServerTypeAndLocation(t *testing.T) {
	_, c := sells(t, "cx33 nbg1", "cx33 fsn1", "cpx32 nbg1", "cpx32 fsn1")
	_, err := capacity.Choose(t.Context(), c, wants("cx33,cpx32", "nbg1,fsn1", "host"))
	var none *capacity.OutOfStockError
	if !errors.As(err, &none) || len(none.Passed) != 4 || !strings.Contains(err.Error(), "cpx32 is out of stock in fsn1") ||
		!strings.Contains(err.Error(), "SERVER_TYPE or LOCATION") {
		t.Errorf("%v", err)
	}
	if _, err = capacity.Choose(t.Context(), c, wants("cx33", "nbg1,hel1", "location")); !errors.As(err, &none) ||
		!strings.Contains(err.Error(), "SPREAD=location") {
		t.Errorf("one location is no spread: %v", err)
	}
}

func TestAWithdrawnServerTypeIsPassedOver(t *testing.T) {
	s, c := sells(t)
	soon := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	s.Put("server_types", 1, schema.ServerType{ID: 1, Name: "cx33", Architecture: "x86",
		Prices: []schema.PricingServerTypePrice{{Location: "nbg1"}},
		Locations: []schema.ServerTypeLocation{{Name: "nbg1", Available: true, DeprecatableResource: schema.DeprecatableResource{
			Deprecation: &schema.DeprecationInfo{Announced: soon.AddDate(0, -3, 0), UnavailableAfter: soon}}}}})
	got, err := capacity.Choose(t.Context(), c, wants("cx33,cpx32", "nbg1", "host"))
	if err != nil || got.ServerType != "cpx32" || !reflect.DeepEqual(got.Passed,
		[]string{"cx33 is withdrawn in nbg1 on 2027-01-31"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A cluster's next server is like its others, whatever is in stock now.
func TestAClusterKeepsItsServerTypeAndLocation(t *testing.T) {
	s, c := sells(t)
	server := func(id int64, kind, location, role string) {
		s.Put("servers", id, schema.Server{ID: id, Name: "k8s-control-plane-" + kind, Location: schema.Location{Name: location},
			ServerType: schema.ServerType{Name: kind}, Labels: map[string]string{"caph-cluster-k8s": "owned", "machine_type": role}})
	}
	server(1, "cx33", "fsn1", "control_plane")
	server(2, "cpx32", "fsn1", "control_plane")
	server(3, "cax21", "hel1", "worker")
	got, err := capacity.Choose(t.Context(), c, wants("cx33,cpx32", "nbg1,fsn1", "host"))
	if err != nil || got.ServerType != "cpx32" || got.Location != "fsn1" {
		t.Errorf("the newest server's type, in its location: %+v, %v", got, err)
	}
	if got, err = capacity.Choose(t.Context(), c, wants("cax21,cx33", "nbg1,hel1", "host")); err != nil ||
		got.ServerType != "cax21" || got.Location != "nbg1" {
		t.Errorf("what is not configured is not kept: %+v, %v", got, err)
	}
}

// The load balancer is where the cluster's address is; servers may be in another location of the network zone.
func TestAnAddressThatExistsDecidesWhereTheLoadBalancerIs(t *testing.T) {
	s, c := sells(t, "cx33 nbg1")
	s.Put("primary_ips", 1, schema.PrimaryIP{ID: 1, Name: hetzner.EndpointName("k8s"), IP: "127.0.0.9", Type: "ipv4",
		Location: schema.Location{Name: "nbg1"}, Labels: map[string]string{hetzner.OwnerLabel: "k8s",
			"slipway-role": "control-plane-endpoint"}})
	got, err := capacity.Choose(t.Context(), c, wants("cx33", "ash,nbg1,fsn1", "host"))
	if err != nil || got.Location != "nbg1" || !reflect.DeepEqual(got.Locations, []string{"fsn1"}) ||
		len(got.Passed) != 2 || !strings.Contains(got.Passed[0], "another network zone") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWhatDoesNotExistIsNamed(t *testing.T) {
	_, c := sells(t)
	for want, cfg := range map[string]config.Config{
		`location "xyz1" does not exist at Hetzner: choose one of ash, fsn1, hel1, nbg1`:     wants("cx33", "nbg1,xyz1", "host"),
		`server type "cx99" does not exist at Hetzner: choose one of cax21, cpx32, cx33`:     wants("cx33,cx99", "nbg1", "host"),
		`"cax21" is not sold in ash; locations that have it: choose one of fsn1, hel1, nbg1`: wants("cax21", "ash", "host"),
		`location "ash" is in network zone us-east, and nbg1 in eu-central`:                  wants("cx33", "nbg1,ash", "location"),
		`load balancer type "lb99" does not exist`: func() config.Config {
			c := wants("cx33", "nbg1", "host")
			c.LoadBalancerType = "lb99"
			return c
		}(),
	} {
		_, err := capacity.Choose(t.Context(), c, cfg)
		var unknown *hetzner.Unknown
		if !errors.As(err, &unknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestWrongToken(t *testing.T) {
	s := hetznertest.New()
	t.Cleanup(s.Close)
	c := hcloud.NewClient(hcloud.WithEndpoint(s.URL), hcloud.WithToken("a-token-nobody-knows"))
	_, err := capacity.Choose(t.Context(), c, config.Defaults())
	if !errors.Is(err, hetzner.ErrToken) || strings.Contains(err.Error(), "a-token-nobody-knows") {
		t.Errorf("got %v", err)
	}
}

// Later questions are about what was chosen, whether or not it is in stock.
func TestAgainAsksForTheChoiceAlone(t *testing.T) {
	_, c := sells(t)
	was, err := capacity.Choose(t.Context(), c, wants("cx33,cpx32", "nbg1,fsn1", "host"))
	if err != nil {
		t.Fatal(err)
	}
	_, c = sells(t, "cx33 nbg1")
	if is, err := capacity.Again(t.Context(), c, was); err != nil || !reflect.DeepEqual(is, was) {
		t.Errorf("%+v, %v", is, err)
	}
}
