package test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// rehearsed rehearses a change of the configuration from a backup of the cluster: of what was applied last, its state
// folder is asked, and what was changed with kubectl since stays.
func rehearsed(t *testing.T, c *command, _ string) {
	err := workload(t, c).RESTClient().Patch(types.MergePatchType).AbsPath(
		"/apis/infrastructure.cluster.x-k8s.io/v1beta1/namespaces/default/hetznerclusters/k8s").
		Body([]byte(`{"spec":{"controlPlaneLoadBalancer":{"algorithm":"least_connections"}}}`)).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	r := rehearse(t, c, c, "apply", "CILIUM_VERSION=1.18.13", "LOAD_BALANCER_TYPE=lb21", "CONTROL_PLANE_REPLICAS=1")
	for _, stage := range []string{"configuration", "cilium", "wait-releases", "scale"} {
		if !slices.Contains(r.stages(), stage) {
			t.Errorf("the report has no stage %s: %v", stage, r.stages())
		}
	}
	if len(r.Changed) != 2 || !strings.Contains(r.Changed[0], "lb11 → lb21") ||
		r.Changed[1] != "control plane servers: 1" {
		t.Errorf("the report says of the configuration %q", r.Changed)
	}
	if out, err := c.exec(t.Context(), "status", "--lab"); err != nil || strings.Contains(out, "1.18.13") {
		t.Errorf("the cluster itself: %v\n%s", err, out)
	}
	if left, err := filepath.Glob(c.state + ".drill-*"); err != nil || len(left) > 0 {
		t.Errorf("the rehearsal has left %v, %v", left, err)
	}
}

// rehearsal is the report of one.
type rehearsal struct {
	Kind, Change  string
	Passed        bool
	Parts, Stages []struct{ Name string }
	Changed       []string
	API           struct{ Requests int }
	Comparisons   []struct {
		What, Seen string
		Same       bool
	}
}

func (r rehearsal) stages() (names []string) {
	for _, s := range r.Stages {
		names = append(names, s.Name)
	}
	return names
}

// rehearse rehearses a change from a backup of the cluster, in a lab of its own; the cluster goes on running. in is the
// command that does it, with the state folder of the cluster or without.
func rehearse(t *testing.T, c, in *command, change string, to ...string) (r rehearsal) {
	t.Helper()
	folder := t.TempDir()
	if o := c.run(nil, "backup", "--lab", "--to", folder, "--unencrypted"); o.exit != 0 {
		t.Fatalf("backup: exit %d\n%s", o.exit, o.end())
	}
	files, err := filepath.Glob(filepath.Join(folder, "k8s-*.slipway"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the backup is %v, %v", files, err)
	}
	o := in.run(nil, append([]string{change, "--rehearse", files[0], "--unencrypted"}, to...)...)
	for _, line := range strings.Split(strings.TrimSpace(o.output), "\n") {
		if strings.Contains(line, `"kind":"rehearsal"`) {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.exit != 0 || !r.Passed {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	t.Logf("rehearsed in %.0fs: %d requests, %+v", o.elapsed.Seconds(), r.API.Requests, r.Comparisons)
	if r.API.Requests == 0 || len(r.Comparisons) == 0 {
		t.Errorf("the report lacks something: %+v", r)
	}
	if r.Change != change {
		t.Errorf("the report is of %q", r.Change)
	}
	return r
}
