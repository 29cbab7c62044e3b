package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

func TestReadoptRefusesBeforeAnythingIsBegun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeBackup(t, "empty", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "k8s", UID: "uid", Taken: time.Now()})
	writeBackup(t, "other", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "other", UID: "uid", Taken: time.Now()})
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"readopt"}, "FILE"},
		{[]string{"readopt", "missing"}, "missing"},
		{[]string{"readopt", "empty"}, "it lacks"},
		{[]string{"readopt", "other"}, "not of k8s"},
		{[]string{"restore", "empty", "--accept", "server-missing/x"}, "--accept goes with the target readopt"},
	} {
		r := execute(t, t.Context(), dir, "", append(c.arguments, "--unencrypted")...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: exit %d, %s", c.arguments, r.code, r.stderr)
		}
	}
	if contents := folderContents(t, dir); strings.Contains(contents, statedir.StateFolderIn) {
		t.Error("a refused readoption made a state folder")
	}
}

func TestNothingElseRunsInTheMiddleOfAReadoption(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := platform.FilesIn(filepath.Join(dir, "state"))
	record := `{"cluster": "k8s", "uid": "uid", "snapshot": "5a5a", "began": "2026-01-02T03:04:05Z"}`
	if err := records.ReadoptFiles(state).Write("readopt.json", []byte(record)); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"bootstrap", "pivot", "all"} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1",
			target, "--state-dir", state.String())
		if r.code != ExitUsage || !strings.Contains(r.stderr, "is being readopted") {
			t.Errorf("%s: exit %d, %s", target, r.code, r.stderr)
		}
	}
}

// A readoption that only compares leaves the state folder as it is, and makes none.
func TestReadoptDryRunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeLostCluster(t, "lost", time.Now())
	environment := inProject(newMarket(t))
	state := platform.FilesIn(filepath.Join(dir, "state"))
	look := func(begun string) {
		t.Helper()
		before := folderContents(t, dir)
		r := execute(t, t.Context(), dir, environment, "readopt", "lost", "--unencrypted", "--dry-run", "--state-dir", state.String())
		if r.code != ExitFailed || !strings.Contains(r.stderr, "only one that lives can be readopted") {
			t.Errorf("%s: %+v", begun, r)
		}
		if after := folderContents(t, dir); after != before {
			t.Errorf("%s: before\n%s\nafter\n%s", begun, before, after)
		}
	}
	look("no folder yet")
	over := `{"cluster": "k8s", "uid": "uid", "snapshot": "5a5a", "began": "2026-01-02T03:04:05Z", "ended": "2026-01-02T04:04:05Z"}`
	if err := records.ReadoptFiles(state).Write("readopt.json", []byte(over)); err != nil {
		t.Fatal(err)
	}
	look("one that is over")
	if r := execute(t, t.Context(), dir, "", "readopt", "lost", "--unencrypted", "--dry-run", "--state-dir",
		state.String()); r.code != ExitUsage || !strings.Contains(r.stderr, "HCLOUD_TOKEN is not set") {
		t.Errorf("without a token: %+v", r)
	}
	if r := execute(t, t.Context(), dir, environment, "readopt", "lost", "--unencrypted", "--dry-run", "--lab", "--state-dir",
		filepath.Join(dir, "rehearsal")); r.code != ExitUsage || !strings.Contains(r.stderr, "the lab is down") ||
		lab.Exists("rehearsal") {
		t.Errorf("in a lab that is down: %+v", r)
	}
}
