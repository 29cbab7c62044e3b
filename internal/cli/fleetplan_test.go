//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

// A cluster that exists, by its state in the management cluster, costs nothing new; another one does.
func TestFleetPlanOfAClusterThatExists(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	q.environment = newStore(t, []string{"STATE=k8s://fleets", "STATE_KUBECONFIG=" + filepath.Join(q.dir, "kubeconfig")})
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	identity := q.environment[len(q.environment)-1]
	file := fleetHead + "pivot: false\ndefaults:\n  firewallAllow: 203.0.113.0/24\n  namespace: default\n  ciliumRepository: " + q.charts +
		"\n  hcloudCcmRepository: " + q.charts + "\n  talosCcmRepository: " + q.charts + "\nclusters:\n  - name: k8s\n  - name: other\n"
	if err := os.WriteFile(filepath.Join(q.dir, "fleet.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	before := q.look()
	r := execute(t, t.Context(), q.dir, strings.Join([]string{"HCLOUD_TOKEN=" + hetznertest.Token, identity,
		"HCLOUD_ENDPOINT=" + q.Hetzner.URL, "MANAGEMENT_KUBECONFIG=kubeconfig"}, " "), "fleet", "plan", "--output", "json")
	var p operations.Forecast
	if err := json.Unmarshal([]byte(r.stdout), &p); err != nil || r.code != ExitDone || len(p.Clusters) != 2 {
		t.Fatalf("%v: %+v", err, r)
	}
	is, other := p.Clusters[0], p.Clusters[1]
	if is.Bill == nil || len(is.Bill.New) != 0 || is.Bill.Monthly.Monthly != 0 || other.Bill == nil ||
		other.Bill.Monthly.Monthly <= 0 || p.Monthly != other.Bill.Monthly.Monthly {
		t.Errorf("together %v, that exists %+v, another %+v", p.Monthly, is.Bill, other.Bill)
	}
	if after := q.look(); after != before {
		t.Errorf("planning has changed:\n%s", difference(before, after))
	}
}
