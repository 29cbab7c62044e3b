package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/steps"
)

// fits tells the lines that a terminal would break in the middle of a word.
func fits(t *testing.T, text string, width int) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := len([]rune(strings.TrimRight(line, "\n"))); n > width {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestSummaryAtATerminal(t *testing.T) {
	name := "k8s-control-plane-3b431-582k6"
	s := operations.Summary{Cluster: "k8s", Elapsed: 93 * time.Second,
		Hetzner: ratelimit.Counts{Requests: 57, Slowed: 12, Waited: 34 * time.Second}, Steps: []flow.StepReport{{Name: "image"}},
		Nodes: []steps.Node{{Name: name, Version: "v1.32.2", InternalIP: "10.10.64.10", ExternalIP: "203.0.113.120",
			ProviderID: "hcloud://100000028"}}}
	for width, want := range map[int][]string{0: {"STEP", "hcloud://100000028", "1m33s", "57 requests, 12 waited 34s in total"}, 80: {"203.0.113.120", "1m33s", "57 requests"},
		200: {"hcloud://100000028"}} {
		var out strings.Builder
		if err := printSummary(&out, width, s); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("at %d columns it lacks %q:\n%s", width, w, out.String())
			}
		}
		if width > 0 {
			fits(t, out.String(), width)
			if strings.Contains(out.String(), "STEP") {
				t.Error("the steps are shown a second time")
			}
		}
	}
}

func TestStatusAtATerminal(t *testing.T) {
	name := "k8s-control-plane-3b431-582k6"
	waits := "waiting for Secret k8s-kubeconfig: it does not exist yet; etcd: 0 of 3 servers run; " + name +
		": its server is initializing"
	r := status.Report{State: "state",
		Steps: []status.Step{{Step: "firewall-apply", State: "interrupted", Said: waits, Started: time.Unix(1, 0),
			Ended: time.Unix(90, 0), Verified: "holds"}},
		Notes: []string{"firewall k8s is applied to the servers, but Hetzner's firewalls cannot be applied to a load " +
			"balancer: it answers every address on 6443 and 50000"},
		Now: &status.Overview{Sentence: "waiting for etcd: 2 of 3 servers run; " + name +
			": server type cx33 is out of stock in nbg1 (CAPH tries again within 10 s)",
			Servers: []status.Server{{Name: name, State: "running", Machine: "k8s-control-plane-ddx96", Phase: "Running",
				Talos: "connection refused by 203.0.113.120:50000", Node: "Ready"}},
			Unknown: []status.Unasked{{What: "the Helm releases", Why: waits}}}}
	for _, width := range []int{0, 80, 200} {
		var out strings.Builder
		if err := r.Print(&out, width); err != nil {
			t.Fatal(err)
		}
		if width > 0 {
			fits(t, out.String(), width)
		}
		for _, w := range []string{name, "k8s-control-plane-ddx96", "Ready", "tries again", "note:", "initializing"} {
			if !strings.Contains(out.String(), w) {
				t.Errorf("at %d columns it lacks %q:\n%s", width, w, out.String())
			}
		}
	}
}
