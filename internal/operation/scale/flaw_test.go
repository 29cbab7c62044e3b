package scale

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// TestExamineSaysThatItMayNeverEnd: the provider that is installed counts, and where nothing changes there is no rollout.
func TestExamineSaysThatItMayNeverEnd(t *testing.T) {
	p, tools := newProvider(t)
	plane := NewControlPlane(p.Config(), tools)
	for _, tt := range []struct {
		installed string
		to        int
		is        bool
	}{{"v0.5.12", 4, true}, {"v0.5.12", 3, false}, {"v0.5.13", 4, false}} {
		p.Management.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", "control-plane-talos",
			"control-plane-talos", clustertest.Map{"version": tt.installed}))
		c, err := plane.Examine(t.Context(), t.Logf, tt.to)
		if err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(c.Flaw, "upgrade CACPPT_VERSION=v0.5.13"); says != tt.is || !says && c.Flaw != "" {
			t.Errorf("%s, to %d: %q", tt.installed, tt.to, c.Flaw)
		}
	}
}
