package test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rehearsed rehearses an upgrade from a backup of the cluster. Of the stages it has the chart of Cilium: the others are
// what the upgrade itself is tested with.
func rehearsed(t *testing.T, c *command, _ string) {
	stages := rehearse(t, c, "CILIUM_VERSION=1.18.13")
	for _, stage := range []string{"cilium", "wait-releases"} {
		if !slices.Contains(stages, stage) {
			t.Errorf("the report has no stage %s: %v", stage, stages)
		}
	}
	if out, err := c.exec(t.Context(), "status", "--lab"); err != nil || strings.Contains(out, "1.18.13") {
		t.Errorf("the cluster itself: %v\n%s", err, out)
	}
}

// rehearse rehearses an upgrade from a backup of the cluster, in a lab of its own and without the state folder of the
// cluster, which goes on running. It returns the stages of the report.
func rehearse(t *testing.T, c *command, to ...string) (stages []string) {
	t.Helper()
	folder := t.TempDir()
	if o := c.run(nil, "backup", "--lab", "--to", folder, "--unencrypted"); o.exit != 0 {
		t.Fatalf("backup: exit %d\n%s", o.exit, o.output)
	}
	files, err := filepath.Glob(filepath.Join(folder, "k8s-*.slipway"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the backup is %v, %v", files, err)
	}
	o := newCommand(t).run(nil, append([]string{"upgrade", "--rehearse", files[0], "--unencrypted"}, to...)...)
	var r struct {
		Kind          string
		Passed        bool
		Parts, Stages []struct{ Name string }
		API           struct{ Requests int }
		Comparisons   []struct {
			What, Seen string
			Same       bool
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(o.output), "\n") {
		if strings.Contains(line, `"kind":"rehearsal"`) {
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if o.exit != 0 || !r.Passed {
		t.Fatalf("exit %d\n%s", o.exit, o.output)
	}
	t.Logf("rehearsed in %.0fs: %d requests, %+v", o.elapsed.Seconds(), r.API.Requests, r.Comparisons)
	if r.API.Requests == 0 || len(r.Comparisons) == 0 {
		t.Errorf("the report lacks something: %+v", r)
	}
	for _, s := range r.Stages {
		stages = append(stages, s.Name)
	}
	return stages
}
