//go:build unix

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/clustertest/fakeenv"
)

// outOfStock is a server that is out of stock for a while; 0: until it is undone.
func outOfStock(lasts time.Duration) fakeenv.Refusal {
	return fakeenv.Refusal{
		Kind: "HCloudMachine", Condition: "ServerCreateSucceeded", Severity: "Warning", Reason: "ServerCreateFailedReason",
		Message: `creating server "k8s-control-plane-0" (cx33 in nbg1): error during placement (resource_unavailable)`,
		For:     lasts,
	}
}

// TestHopelessWaits makes clusters where something is refused that no waiting brings. The run ends at once, far before
// its time-outs, with the reason and the way out; once it is resolved the next run resumes from there. What may come by
// itself is waited for, and a time-out tells what was last seen.
func TestHopelessWaits(t *testing.T) {
	charts := quickCharts(t)
	const deadline = "CONTROL_PLANE_TIMEOUT=4s"
	for name, tt := range map[string]struct {
		refused  fakeenv.Refusal
		variable string // of the configuration
		says     []string
	}{
		"the limit of servers": {
			refused: fakeenv.Refusal{Kind: "HCloudMachine", Condition: "ServerCreateSucceeded", Severity: "Warning",
				Reason:  "ServerLimitExceeded",
				Message: "server limit exceeded (resource_limit_exceeded, 1a2b)"},
			says: []string{"k8s-control-plane-0: the project's limit of servers is reached", "Console, Limits"},
		},
		"no image": {
			refused: fakeenv.Refusal{Kind: "HCloudMachine", Condition: "ServerCreateSucceeded", Severity: "Error",
				Reason:  "ImageNotFound",
				Message: "no image found with name talos-amd64-v1.13.9", NoImage: true},
			says: []string{"there is no image talos-amd64-v1.13.9", "the target image creates it: bootstrap image "},
		},
		"the token was revoked": {
			refused: fakeenv.Refusal{Kind: "HetznerCluster", Condition: "HCloudTokenAvailable", Severity: "Error",
				Reason:  "HCloudCredentialsInvalid",
				Message: "credentials for hetzner cloud are invalid"},
			says: []string{"Hetzner does not accept the token that Cluster API has",
				"the target secret, or after a pivot token, takes it to Cluster API: bootstrap secret "},
		},
		"the limit of load balancers": {
			refused: fakeenv.Refusal{Kind: "HetznerCluster", Condition: "LoadBalancerReady", Severity: "Error",
				Reason:  "LoadBalancerCreateFailed",
				Message: "creating: load balancer limit exceeded (resource_limit_exceeded, 1a2b)"},
			says: []string{"the project's limit is reached (load balancer)", "Console, Limits"},
		},
		"out of stock for ever": {
			refused: outOfStock(0), variable: deadline,
			says: []string{"server type cx33 is out of stock in nbg1", "4s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := quickPlan()
			plan.Refused = tt.refused
			q := newQuickOf(t, charts, plan)
			if tt.variable != "" {
				q.environment = []string{tt.variable}
			}
			if code := q.run(t, death{}); code != ExitFailed {
				t.Fatalf("it ends with %d: %s", code, q.stderr)
			}
			t.Logf("it ended after %s: %s", q.took, q.stderr)
			for _, words := range tt.says {
				if !strings.Contains(q.stderr, words) {
					t.Errorf("it does not say %q: %s", words, q.stderr)
				}
			}
			if n := strings.Count(q.stderr, tt.says[len(tt.says)-1]); n != 1 && tt.variable == "" {
				t.Errorf("it says %d times %q: %s", n, tt.says[len(tt.says)-1], q.stderr)
			}
			q.sound(t)
			// What was observed before a run began may have been resolved: the next one waits until the controller has
			// tried again.
			q.environment = nil
			after := 2 * time.Second
			if tt.refused.NoImage {
				after = 0 // else the run makes one
			}
			mend := time.AfterFunc(after, q.Mend)
			defer mend.Stop()
			if code := q.run(t, death{}); code != ExitDone {
				t.Fatalf("resolved, it ends with %d: %s", code, q.stderr)
			}
			if again := q.repeated(t); len(again) > 0 {
				t.Errorf("done, and run again: %q", again)
			}
		})
	}
}
