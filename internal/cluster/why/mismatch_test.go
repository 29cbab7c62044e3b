package why

import (
	"strings"
	"testing"
	"time"
)

// TestMismatch: the node is named with what to do, and the wait is given up when what could correct it had the time.
func TestMismatch(t *testing.T) {
	unnamed, recreated := Mismatch{}, Mismatch{ProviderID: "hcloud://7"}
	for name, tt := range map[string]struct {
		mismatch     Mismatch
		lasts        time.Duration // 0: Cluster API has not noticed it
		controlPlane bool
		says, do     string
		terminal     bool
	}{
		"a hostname, a minute": {unnamed, time.Minute, true, "is the server server-0", "the target replace-machine", false},
		"a hostname": {unnamed, 5 * time.Minute, true, "is the server server-0",
			"the target replace-machine", true},
		"a worker's hostname": {unnamed, 5 * time.Minute, false, "is the server server-0",
			"kubectl --namespace default delete machine machine-0", true},
		"a provider ID, unnoticed": {recreated, 0, false, "created its server again, as hcloud://7", "kubectl", false},
		"a provider ID, a minute":  {recreated, time.Minute, false, "created its server again", "kubectl", false},
		"a provider ID": {recreated, 5 * time.Minute, true, "created its server again",
			"the target replace-machine", true},
	} {
		s := rolling(0)
		s.Talos["server-0"] = Talos{Etcd: true, State: "Running"}
		m := tt.mismatch
		m.Machine, m.Namespace, m.Server, m.ControlPlane = "machine-0", "default", "server-0", tt.controlPlane
		if tt.lasts > 0 {
			m.Since = now.Add(-tt.lasts)
		}
		s.Nodes[0] = Node{Name: "node-0", Ready: m.ProviderID != "", Troubles: []string{"no"}, Mismatch: &m}
		a := Explain(s)
		if len(a.Findings) == 0 || !strings.Contains(a.Findings[0].String(), "node-0: ") ||
			!strings.Contains(a.Findings[0].String(), tt.says) || !strings.HasPrefix(a.Findings[0].Do, tt.do) ||
			(a.Terminal(time.Time{}) != nil) != tt.terminal || (a.TerminalForWorkers(time.Time{}) != nil) != tt.terminal {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
