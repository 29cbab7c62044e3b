package status

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
)

// status says what the firewall does not cover, once there is one over the servers.
func TestNotesTellWhatTheFirewallDoesNotCover(t *testing.T) {
	w, journal := clustertest.New(t), flow.Memory()
	cfg := w.Config()
	cfg.FirewallAllow = "203.0.113.0/24"
	notes := func() []string {
		t.Helper()
		l := begin(t, w, cfg, Recorded{})
		defer l.Close()
		notes, err := l.Notes()
		if err != nil {
			t.Fatal(err)
		}
		return notes
	}
	if _, err := bootstrapped.Run(t, w, cfg, journal, "wait-nodes", "firewall"); err != nil {
		t.Fatal(err)
	}
	if n := notes(); len(n) > 0 {
		t.Errorf("while it covers no server: %q", n)
	}
	if _, err := bootstrapped.Run(t, w, cfg, journal, "firewall-apply"); err != nil {
		t.Fatal(err)
	}
	if n := notes(); len(n) != 1 || !strings.Contains(n[0], clustertest.LoadBalancerIP+" answers every address on 6443 "+
		"and 50000") {
		t.Errorf("notes %q", n)
	}
	private := hetznertest.LoadBalancer(9, "k8s-kube-apiserver-a1b2c", clustertest.LoadBalancerIP, clustertest.OwnedByCAPH,
		6443, 50000)
	private.PublicNet.Enabled = false
	w.Hetzner.SetLoadBalancers(private)
	if n := notes(); len(n) > 0 {
		t.Errorf("without a public interface: %q", n)
	}
}
