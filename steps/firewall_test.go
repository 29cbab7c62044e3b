package steps

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

func TestTheFirewallIsMendedAndNotRewritten(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.FirewallAllow = "203.0.113.7/32, auto"
	tools := w.Tools()
	tools.OwnAddress = func(context.Context) (netip.Addr, error) { return netip.MustParseAddr("198.51.100.9"), nil }
	if _, err := runTargets(t, w, cfg, tools, journal, "firewall"); err != nil {
		t.Fatal(err)
	}
	wall := w.Hetzner.Firewalls()[0]
	want := []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "203.0.113.7/32", "198.51.100.9/32"}
	if len(wall.Rules) != 2 || !slices.Equal(wall.Rules[0].SourceIPs, want) || *wall.Rules[0].Port != "6443" ||
		*wall.Rules[1].Port != "50000" {
		t.Fatalf("rules %+v", wall.Rules)
	}
	writes := w.Writes()
	if report, err := runTargets(t, w, cfg, tools, journal, "firewall"); err != nil || len(ran(report)) > 0 ||
		w.Writes() != writes {
		t.Errorf("again: %v ran, %d writes, %v", ran(report), w.Writes()-writes, err)
	}
	wall.Rules = append(wall.Rules, wall.Rules[0])
	wall.Rules[2].SourceIPs = []string{"0.0.0.0/0"}
	w.Hetzner.SetFirewalls(wall)
	report, err := runTargets(t, w, cfg, tools, journal, "firewall")
	if s, _ := report.Step("firewall"); err != nil || !strings.Contains(s.Reason, "it has in tcp 6443 for 0.0.0.0/0") {
		t.Errorf("opened by hand: %+v, %v", s, err)
	}
	if rules := w.Hetzner.Firewalls()[0].Rules; len(rules) != 2 {
		t.Errorf("not mended: %+v", rules)
	}
}

func TestTheFirewallDoesNotCutOffTheManager(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cutOff := []string{"", "10.99.0.0/16,192.168.0.0/16"} // a private range adds nothing to those that are let in anyway
	for _, cfg.FirewallAllow = range cutOff {
		if _, err := runTargets(t, w, cfg, w.Tools(), journal, "wait-nodes", "firewall-apply"); !errors.Is(err, ErrCutsOff) {
			t.Fatalf("managed from outside, FIREWALL_ALLOW=%q: %v", cfg.FirewallAllow, err)
		}
		if walls := w.Hetzner.Firewalls(); len(walls) != 1 || len(walls[0].AppliedTo) > 0 {
			t.Errorf("it was applied all the same: %+v", walls)
		}
	}
	cfg.FirewallAllow = "203.0.113.0/24"
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "wait-nodes", "firewall-apply"); err != nil {
		t.Fatal(err)
	}
	if to := w.Hetzner.Firewalls()[0].AppliedTo; len(to) != 1 ||
		to[0].LabelSelector.Selector != "caph-cluster-k8s==owned" {
		t.Errorf("applied to %+v", to)
	}
	if report, err := runTargets(t, w, cfg, w.Tools(), journal, "firewall-apply"); err != nil || len(ran(report)) > 0 {
		t.Errorf("again %v ran, %v", ran(report), err)
	}
	sources := func() []string { return w.Hetzner.Firewalls()[0].Rules[1].SourceIPs }
	for _, cfg.FirewallAllow = range cutOff {
		if _, err := runTargets(t, w, cfg, w.Tools(), journal, "firewall"); !errors.Is(err, ErrCutsOff) {
			t.Errorf("new rules over the servers, FIREWALL_ALLOW=%q: %v", cfg.FirewallAllow, err)
		}
		if is := sources(); !slices.Contains(is, "203.0.113.0/24") {
			t.Errorf("FIREWALL_ALLOW=%q: lets in %v", cfg.FirewallAllow, is)
		}
	}
	// it holds the Cluster object, as after a pivot
	if err := w.Tools().Files.Write(platform.Kubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	cfg.FirewallAllow = ""
	if _, err := runTargets(t, w, cfg, w.Tools(), journal, "firewall"); err != nil ||
		!slices.Equal(sources(), privateRanges) {
		t.Errorf("managed by itself: %v lets in %v", err, sources())
	}
}

func TestFirewallAllowIsJudged(t *testing.T) {
	for value, ok := range map[string]bool{"": true, "auto": true, "203.0.113.0/24,auto": true, "203.0.113.7": false,
		"203.0.113.7/24": false, "all": false} {
		cfg := config.Defaults()
		cfg.FirewallAllow = value
		if errs := cfg.Validate(); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", value, errs)
		}
	}
}
