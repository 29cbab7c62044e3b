package cli

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/quorum"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// Before the question is answered nothing is kept, also where Ctrl-C is the answer: the snapshot holds every secret
// of the cluster.
func TestAnInterruptedLookAtEtcdKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var kept []string // in the middle of it
	folder := filepath.Join(dir, statedir.StateFolderIn, "k8s", "recover-quorum")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		if !strings.Contains(asked.URL.Path, "/placement_groups") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		kept, _ = filepath.Glob(filepath.Join(folder, "*"))
		interrupt()
		<-asked.Context().Done()
	}))
	r := execute(t, ctx, dir, "HCLOUD_TOKEN=a-real-looking-token HCLOUD_ENDPOINT="+api.URL, "recover-quorum", "--yes")
	api.Close()
	if r.code != ExitInterrupted || len(kept) == 0 {
		t.Fatalf("nothing was interrupted: %+v; it had %v", r, kept)
	}
	if _, err := os.Lstat(folder); !os.IsNotExist(err) {
		t.Errorf("it leaves %s: %v", folderContents(t, folder), err)
	}
	if strings.Contains(r.stderr, "is kept") || !strings.Contains(r.stderr, "what was read of etcd is removed") {
		t.Errorf("it says that something is kept: %s", r.stderr)
	}
}

// A survey that fails is removed, and its error does not say that it is kept.
func TestAFailedLookAtEtcdKeepsNothing(t *testing.T) {
	_, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, environment, "recover-quorum", "--yes", "--state-dir", "state")
	if r.code != ExitFailed || strings.Contains(r.stderr, "is kept") || strings.Contains(r.stderr, "resumes") ||
		!strings.Contains(r.stderr, "what was read of etcd is removed; log: ") {
		t.Errorf("it says that something is kept: %+v", r)
	}
	if _, err := os.Lstat(filepath.Join("state", "recover-quorum")); !os.IsNotExist(err) {
		t.Errorf("it is kept: %v", err)
	}
}

// A dry run leaves no folder, no file and nothing at Hetzner, also where it finds that there is nothing to recover.
func TestRecoverQuorumDryRunLeavesNothing(t *testing.T) {
	store, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, environment, "recover-quorum", "-n", "--state-dir", "state")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "no talosconfig") {
		t.Errorf("without a state folder: %+v", r)
	}
	files := platform.FilesIn(filepath.Join(dir, "state"))
	if err := files.Write("talosconfig", clustertest.NewTalosconfig(t)); err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, "state")
	r = execute(t, t.Context(), dir, environment, "recover-quorum", "--dry-run", "--state-dir", "state")
	if r.code != ExitFailed || !strings.Contains(r.stderr, "bootstrap restore FILE --state-dir state") {
		t.Errorf("without a server: %+v", r)
	}
	if after := folderContents(t, "state"); after != before {
		t.Errorf("the folder was changed:\n%s\n%s", before, after)
	}
	if writes := store.Writes(); len(writes) > 0 {
		t.Errorf("it wrote: %v", writes)
	}
}

// Of a recovery that is under way it says what that was agreed to, and asks no member: some have been reset.
func TestRecoverQuorumDryRunOfOneUnderWay(t *testing.T) {
	_, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	files := platform.FilesIn(filepath.Join(dir, "state"))
	if err := (records.Consent{Cluster: "k8s", Began: time.Date(2026, 5, 4, 12, 0, 0, 0,
		time.UTC)}).BeginQuorum(files); err != nil {
		t.Fatal(err)
	}
	plan, err := quorum.New(config.Defaults(), platform.Tools{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(etcdview.Survey{Servers: []string{"a", "b", "c"}, Survivor: "b", Index: 7,
		Wipe: []string{"a", "c"}, Target: "a", Silent: []string{"c"}})
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Folder(records.QuorumFiles(files).String())
	if err := journal.Save(t.Context(), flow.Snapshot{Format: 1, Graph: "slipway-recover-quorum",
		Steps: map[string]flow.Record{plan.Survey.Name(): {State: flow.StateDone, Output: out}}}); err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, "state")
	r := execute(t, t.Context(), dir, environment, "recover-quorum", "-n", "--state-dir", "state")
	for _, want := range []string{"begun 2026-05-04T12:00:00Z, is under way", "survivor: b, ", "index 7",
		"reset, in this order: a, c, b", "could not be compared: c", "lost: ",
		"it should take about", "to do it: bootstrap recover-quorum --state-dir state\n"} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("exit %d, and it does not say %q: %s%s", r.code, want, r.stdout, r.stderr)
		}
	}
	r = execute(t, t.Context(), dir, environment, "recover-quorum", "-n", "--state-dir", "state", "--output", "json")
	var f operations.QuorumForecast
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil || f.Survey == nil || f.Survey.Survivor != "b" ||
		f.Began.IsZero() || len(f.Reset) != 3 {
		t.Errorf("%v: %+v of %s%s", err, f, r.stdout, r.stderr)
	}
	if after := folderContents(t, "state"); after != before {
		t.Errorf("the folder was changed:\n%s\n%s", before, after)
	}
}
