package session

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// TestRunsKeepTheVersionSet: a run takes the set of its cluster, also where the state comes from a store when it
// begins, and records the set of a new one. The table of versions has another default than the one inside this command.
func TestRunsKeepTheVersionSet(t *testing.T) {
	w := newStoreTest(t)
	older := w.folder("older")
	if err := older.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway", Steps: map[string]flow.Record{
		"apply": {State: flow.StateDone, Output: json.RawMessage(`{"name":"k8s"}`)}}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"older", "elsewhere"} { // the first run writes the state into the store
		if set, recorded := w.run(name, "k8s"); set != "guide" || recorded != "" {
			t.Errorf("%s: the run takes the set %s, and %q is recorded", name, set, recorded)
		}
	}
	if set, recorded := w.run("new", "other"); set != "2026-11" || recorded != "2026-11" {
		t.Errorf("a new cluster: the run takes the set %s, and %q is recorded", set, recorded)
	}
	if set, recorded := w.run("named", "third", "VERSIONS=current"); set != "2026-11" || recorded != "2026-11" {
		t.Errorf("a new cluster with current: the run takes the set %s, and %q is recorded", set, recorded)
	}
}

// storeTest has a store of states, and a table of versions.
type storeTest struct {
	t             *testing.T
	dir, versions string
}

func newStoreTest(t *testing.T) storeTest {
	t.Helper()
	w := storeTest{t, t.TempDir(), "versions.yaml"}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("../../config/versions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(table), "\ndefault: guide\n", "\ndefault: \"2026-11\"\n", 1)
	for name, content := range map[string]string{"key.txt": key.String(), w.versions: text} {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w storeTest) folder(name string) statedir.Dir { return statedir.Dir(filepath.Join(w.dir, name)) }

// run opens and closes a session, and says which version set it takes and which is recorded.
func (w storeTest) run(folder, cluster string, values ...string) (set, recorded string) {
	w.t.Helper()
	q := Request{Options: Options{StateDir: folder, VersionsFile: w.versions, LabLatency: "fast"}}
	for _, value := range append(values, "CLUSTER_NAME="+cluster, "STATE=file://"+filepath.Join(w.dir, "store"),
		"STATE_IDENTITY_FILE="+filepath.Join(w.dir, "key.txt"), "STATE_WAIT=1s") {
		a, err := settings.ParseAssignment(value)
		if err != nil {
			w.t.Fatal(err)
		}
		q.Values = append(q.Values, a)
	}
	k, err := Load(&Caller{WorkDir: w.dir, Hide: &redact.Redactor{}}, q)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, s, err := k.Open(w.t.Context(), Access{}, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	record, err := ownership.Read(w.folder(folder).Files())
	if err != nil || record == nil {
		w.t.Fatal(record, err)
	}
	set, recorded = s.Cfg.Versions, record.Versions
	if err := s.Close(ctx, nil); err != nil {
		w.t.Fatal(err)
	}
	return set, recorded
}
