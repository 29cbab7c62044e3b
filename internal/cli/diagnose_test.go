package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/platform"
)

func TestDiagnoseSaysWhatToType(t *testing.T) {
	store, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, environment, "restore", "--diagnose", "--output", "json", "--state-dir", "elsewhere")
	var d operations.Diagnosis
	if err := json.Unmarshal([]byte(r.stdout), &d); err != nil || r.code != ExitDone {
		t.Fatalf("exit %d, %v: %s%s", r.code, err, r.stdout, r.stderr)
	}
	if d.Kind != "diagnosis" || d.Disaster != recovery.ServersLost ||
		d.Command != "bootstrap restore FILE --state-dir elsewhere" ||
		d.Takes == nil || d.Takes.Recorded != 0 || d.Takes.Seconds < 60 {
		t.Errorf("%+v, %+v", d, d.Takes)
	}
	r = execute(t, t.Context(), dir, environment, "restore", "--diagnose")
	for _, want := range []string{"all control plane servers are gone", "type:\n  bootstrap restore FILE\n",
		"built-in figures", "name the FILE"} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("exit %d, and it does not say %q:\n%s%s", r.code, want, r.stdout, r.stderr)
		}
	}
	if writes := store.Writes(); len(writes) > 0 {
		t.Errorf("it wrote: %v", writes)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	if r := execute(t, t.Context(), dir, environment, "restore"); r.code != ExitUsage ||
		!strings.Contains(r.stderr, "restore needs FILE") {
		t.Errorf("restore of nothing: exit %d, %s", r.code, r.stderr)
	}
	if r := execute(t, t.Context(), dir, environment, "restore", "--diagnose", "missing"); r.code != ExitUsage {
		t.Errorf("with a file that is not there: exit %d, %s", r.code, r.stderr)
	}
}

func TestNothingElseRunsInTheMiddleOfARecovery(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := (records.Consent{Cluster: "k8s", Began: time.Now()}).BeginQuorum(platform.FilesIn("state")); err != nil {
		t.Fatal(err)
	}
	before := folderContents(t, "state")
	for _, target := range []string{"bootstrap", "pivot", "all"} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1", target, "--state-dir", "state")
		if r.code != ExitUsage || !strings.Contains(r.stderr, "run recover-quorum to its end") {
			t.Errorf("%s: exit %d, %s", target, r.code, r.stderr)
		}
	}
	if after := folderContents(t, "state"); after != before {
		t.Errorf("the folder was changed:\n%s\n%s", before, after)
	}
}
