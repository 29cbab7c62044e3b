//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// TestReportOfTwoCrashesAndAStockOut makes a cluster whose server is out of stock for a while, in three runs of which
// two are killed, and reads the story in the report.
func TestReportOfTwoCrashesAndAStockOut(t *testing.T) {
	plan := quickPlan()
	plan.Refused = outOfStock(3 * time.Second)
	q := newQuickOf(t, quickCharts(t), plan)
	for i, place := range []string{"saved journal save capi-init/done#1", "before journal save wait-cp/done#1"} {
		if code := q.run(t, death{places: place}); code != killed {
			t.Fatalf("run %d ends with %d: %s", i+1, code, q.stderr)
		}
	}
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("at last it ends with %d: %s", code, q.stderr)
	}
	out := filepath.Join(q.dir, "story.html")
	r := execute(t, t.Context(), q.dir, "", "report", "--state-dir", string(q.state()), "--out", out)
	if r.code != ExitDone || !strings.Contains(r.stdout, "reports 3 runs") {
		t.Fatalf("%+v", r)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	plain := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
	for _, says := range []string{
		"It took 3 runs. Run 1 was killed after", "Run 2 was killed after", "Run 3 came to its end after",
		"run killed it ended itself, as it was asked to for a test: saved journal save capi-init/done#1",
		"run killed it ended itself, as it was asked to for a test: before journal save wait-cp/done#1; at work:",
		"server type cx33 is out of stock in nbg1",
		"wait-cp waited", "CILIUM_REPOSITORY", "FIREWALL_ALLOW 203.0.113.0/24 argument FIREWALL_ALLOW",
		"create firewalls/k8s",
		"k8s-control-plane-0", "hcloud://100",
	} {
		if !strings.Contains(plain, says) {
			t.Errorf("the report does not say %q", says)
		}
	}
	if n := strings.Count(page, `<div class="bar killed"`); n < 1 {
		t.Errorf("%d steps are drawn as cut off", n)
	}
	// One run of them is the beginning of the story.
	ids, err := runs.IDs(q.state())
	if err != nil || len(ids) != 3 {
		t.Fatalf("runs %v, %v", ids, err)
	}
	r = execute(t, t.Context(), q.dir, "", "report", ids[0], "--state-dir", string(q.state()))
	if r.code != ExitDone || !strings.Contains(r.stdout, "reports 1 run,") {
		t.Errorf("of the first run: %+v", r)
	}
	if _, err := os.Stat(q.state().Path(filepath.Join(statedir.RunsFolder, ids[0], report.File))); err != nil {
		t.Error(err)
	}
	for range 2 {
		if code := q.run(t, death{}); code != ExitDone {
			t.Fatalf("once more: %s", q.stderr)
		}
	}
	all, err := runs.IDs(q.state())
	if err != nil || len(all) != 5 {
		t.Fatalf("runs %v, %v", all, err)
	}
	state := string(q.state())
	r = execute(t, t.Context(), q.dir, "", "report", "--state-dir", state)
	for _, want := range []string{"reports 3 runs, " + ids[2], "2 runs after it changed nothing",
		"bootstrap report " + all[4] + " --state-dir " + state} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("after two runs that changed nothing it does not say %q: %+v", want, r)
		}
	}
	r = execute(t, t.Context(), q.dir, "", "report", all[4], "--state-dir", state)
	for _, want := range []string{"run " + all[4] + " changed nothing", "bootstrap report " + ids[2] + " --state-dir " +
		state} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("of a run that changed nothing it does not say %q: %+v", want, r)
		}
	}
	if data, err = os.ReadFile(q.state().Path(filepath.Join(statedir.RunsFolder, all[4], report.File))); err != nil ||
		!strings.Contains(string(data), "It changed nothing") {
		t.Errorf("its page does not say so: %v", err)
	}
	listsRuns(t, q, all)
}

// listsRuns reads the list of five runs: two that were killed, one that came to its end and two that changed nothing.
func listsRuns(t *testing.T, q *quick, ids []string) {
	t.Helper()
	r := execute(t, t.Context(), q.dir, "", "report", "--list", "--output", "json", "--state-dir", string(q.state()))
	var list struct{ Runs []report.RunRow }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || r.code != ExitDone || len(list.Runs) != len(ids) {
		t.Fatalf("%+v: %v", r, err)
	}
	for i, row := range list.Runs {
		outcome := []runs.End{runs.Killed, runs.Killed, runs.Finished, runs.Finished, runs.Finished}[i]
		if row.Run != ids[i] || row.Outcome != string(outcome) || row.Idle != (i > 2) || (row.Changes > 0) != (i < 3) ||
			row.Began.IsZero() || row.Elapsed <= 0 || len(row.Targets) == 0 {
			t.Errorf("run %d is listed as %+v", i+1, row)
		}
	}
	r = execute(t, t.Context(), q.dir, "", "report", "--list", "--state-dir", string(q.state()))
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != len(ids)+1 || !strings.Contains(lines[1], "killed") ||
		!strings.Contains(lines[5], "finished, nothing to do") || !strings.HasPrefix(lines[5], ids[4]) {
		t.Errorf("%+v", r)
	}
}
