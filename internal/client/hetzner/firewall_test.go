package hetzner_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

func rules(sources ...string) []hetzner.FirewallRule {
	var all []netip.Prefix
	for _, s := range sources {
		all = append(all, netip.MustParsePrefix(s))
	}
	return []hetzner.FirewallRule{{Port: 6443, Sources: all, Description: "Kubernetes API"}, {Port: 50000, Sources: all,
		Description: "Talos API"}}
}

func TestTheFirewallConverges(t *testing.T) {
	s := start(t)
	c := s.Client(nil)
	f, changed, err := hetzner.EnsureFirewall(t.Context(), c, "k8s", rules("10.0.0.0/8", "192.168.0.0/16"))
	if err != nil || !changed {
		t.Fatalf("made: %v, %v", changed, err)
	}
	// The order of the rules and of their sources does not matter.
	same := rules("192.168.0.0/16", "10.0.0.0/8")
	slices.Reverse(same)
	writes := len(s.Writes())
	if again, changed, err := hetzner.EnsureFirewall(t.Context(), c, "k8s", same); err != nil || changed ||
		again.ID != f.ID {
		t.Errorf("again: %+v, %v, %v", again, changed, err)
	}
	if len(s.Writes()) != writes {
		t.Errorf("with nothing to change it wrote %v", s.Writes()[writes:])
	}
	walls := s.Firewalls()
	walls[0].Rules = walls[0].Rules[:1]
	s.SetFirewalls(walls...)
	f, err = hetzner.FindFirewall(t.Context(), c, "k8s")
	if err != nil || !strings.Contains(f.Differs(same), "it lacks in tcp 50000") {
		t.Errorf("a rule deleted by hand: %q, %v", f.Differs(same), err)
	}
	if _, changed, err := hetzner.EnsureFirewall(t.Context(), c, "k8s", same); err != nil || !changed {
		t.Errorf("restored: %v, %v", changed, err)
	}
	if f, err = hetzner.FindFirewall(t.Context(), c, "k8s"); err != nil || f.Differs(same) != "" {
		t.Errorf("after mending: %q, %v", f.Differs(same), err)
	}
}

func TestAFirewallOfAnotherIsNotTouched(t *testing.T) {
	s := start(t)
	s.SetFirewalls(schema.Firewall{ID: 7, Name: "k8s"}, schema.Firewall{ID: 8, Name: "demo",
		Labels: map[string]string{"slipway-cluster": "demo"}})
	_, _, err := hetzner.EnsureFirewall(t.Context(), s.Client(nil), "k8s", rules("10.0.0.0/8"))
	if err == nil || !strings.Contains(err.Error(), "firewall 7 is called k8s") {
		t.Errorf("got %v", err)
	}
	if writes := s.Writes(); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
}

func TestCoverByLabel(t *testing.T) {
	s := start(t)
	c := s.Client(nil)
	mine := map[string]string{"caph-cluster-k8s": "owned"}
	s.SetServers(schema.Server{ID: 1, Name: "a", Labels: mine}, schema.Server{ID: 2, Name: "b", Labels: mine},
		schema.Server{ID: 3, Name: "other"})
	f, _, err := hetzner.EnsureFirewall(t.Context(), c, "k8s", rules("10.0.0.0/8"))
	if err != nil {
		t.Fatal(err)
	}
	if open, err := hetzner.Uncovered(t.Context(), c, f, "k8s"); err != nil || len(open) != 1 ||
		!strings.HasPrefix(open[0], "every server") {
		t.Errorf("before: %v, %v", open, err)
	}
	for range 2 { // the second time there is nothing to do
		if err := hetzner.CoverServers(t.Context(), c, f, "k8s"); err != nil {
			t.Fatal(err)
		}
		if f, err = hetzner.FindFirewall(t.Context(), c, "k8s"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Firewalls()[0].AppliedTo); n != 1 {
		t.Errorf("applied %d times", n)
	}
	if open, err := hetzner.Uncovered(t.Context(), c, f, "k8s"); err != nil || len(open) > 0 {
		t.Errorf("after: %v, %v", open, err)
	}
	s.SetServers(schema.Server{ID: 1, Name: "a", Labels: mine})
	if open, err := hetzner.Uncovered(t.Context(), c, f, "k8s"); err != nil || !slices.Equal(open, []string{"a"}) {
		t.Errorf("a server that slipped out: %v, %v", open, err)
	}
}
