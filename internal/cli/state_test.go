package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// stateCommand runs commands about a cluster's state in a store of its own.
type stateCommand struct {
	t          *testing.T
	dir, store string
	key        string
}

func newStateCommandTest(t *testing.T) stateCommand {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	s := stateCommand{t: t, dir: t.TempDir(), store: filepath.Join(t.TempDir(), "store"), key: "key.txt"}
	if err := os.WriteFile(filepath.Join(s.dir, s.key), []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s stateCommand) run(folder string, args ...string) ran {
	s.t.Helper()
	return execute(s.t, s.t.Context(), s.dir, "", append(args, "--state-dir", folder, "STATE=file://"+s.store,
		"STATE_IDENTITY_FILE="+filepath.Join(s.dir, s.key), "STATE_WAIT=1s")...)
}

// says runs a command and checks how it ends and what it says.
func (s stateCommand) says(exit int, says, folder string, args ...string) ran {
	s.t.Helper()
	r := s.run(folder, args...)
	if r.code != exit || !strings.Contains(r.stdout+r.stderr, says) {
		s.t.Errorf("%v: exit %d, want %d and %q\n%s%s", args, r.code, exit, says, r.stdout, r.stderr)
	}
	return r
}

func TestStateCommands(t *testing.T) {
	s := newStateCommandTest(t)
	here, there := statedir.Dir(filepath.Join(s.dir, "here")), statedir.Dir(filepath.Join(s.dir, "there"))
	s.says(ExitFailed, "has no state of cluster k8s", "here", "state", "show")
	s.says(ExitDone, "CLUSTER", "here", "state", "list")
	s.says(ExitDone, "no run holds", "here", "state", "unlock")
	recordStep(t, here, "secret")
	s.says(ExitDone, "as serial 1", "here", "state", "push")
	s.says(ExitDone, "as serial 1", "here", "state", "push") // once more
	s.says(ExitDone, "has an older state", "there", "state", "show")
	s.says(ExitDone, "of serial 1", "there", "state", "pull")
	if snapshot, err := there.Journal().Load(t.Context()); err != nil || len(snapshot.Steps) != 1 {
		t.Errorf("the journal that was pulled: %v, %v", snapshot, err)
	}
	recordStep(t, here, "apply")
	s.says(ExitDone, "has changes that", "here", "state", "pull")
	s.says(ExitDone, "as serial 2", "here", "state", "push")
	recordStep(t, there, "kubeconfig")
	s.says(ExitFailed, "have both changed", "there", "state", "pull")
	s.says(ExitFailed, "have both changed", "there", "state", "push")
	s.says(ExitDone, "of serial 2", "there", "state", "pull", "--force")
	if _, err := os.Stat(there.Path(filepath.Join(statedir.AsideName, statedir.JournalFile))); err != nil {
		t.Errorf("what was overwritten is not set aside: %v", err)
	}
	recordStep(t, there, "kubeconfig")
	recordStep(t, here, "image")
	s.says(ExitDone, "as serial 3", "here", "state", "push")
	s.says(ExitDone, "as serial 4", "there", "state", "push", "--force")
	s.says(ExitDone, "of serial 2", "here", "state", "pull", "--version", "2")
	s.says(ExitDone, "has changes that the store has not", "here", "state", "show")
	s.says(ExitDone, "nothing was changed", "here", "state", "pull") // nor does what only looks take it back
	r := s.says(ExitDone, "", "here", "state", "show", "--output", "json")
	var shown operations.ShownState
	if err := json.Unmarshal([]byte(r.stdout), &shown); err != nil || shown.Serial != 4 || len(shown.Versions) != 3 ||
		len(shown.Sealed) != 0 {
		t.Errorf("%+v, %v", shown, err)
	}
	noSecrets(t, r, here, strings.TrimSpace(readFileText(t, filepath.Join(s.dir, s.key))))
	s.says(ExitDone, "as serial 5", "here", "state", "push")
	s.says(ExitDone, "versions are written anew, with the first key", "here", "state", "rekey")
	s.says(ExitDone, "AUTHENTIC", "here", "state", "list")
	s.says(ExitUsage, "no serial", "here", "state", "pull", "--version", "two")
	s.says(ExitFailed, "read version 9", "here", "state", "pull", "--version", "9")
}

func readFileText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestStateThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	before := folderContents(t, dir)
	for says, args := range map[string][]string{
		"STATE is not configured": {"state", "show"},
		"names no absolute":       {"state", "show", "STATE=file://here"},
		"is no store":             {"state", "show", "STATE=here"},
		"names no namespace":      {"state", "show", "STATE=k8s://A/b"},
		"stateS3Endpoint":         {"state", "show", "STATE=s3://bucket"},
		"AWS_ACCESS_KEY_ID":       {"state", "show", "STATE=s3://bucket", "STATE_S3_ENDPOINT=https://x.example"},
		"STATE needs a key":       {"state", "show", "STATE=file:///tmp/x"},
		"STATE_IDENTITY_FILE":     {"state", "show", "STATE=file:///tmp/x", "STATE_IDENTITY_FILE=" + filepath.Join(dir, "none")},
		"runs in none":            {"state", "show", "STATE=k8s://slipway", "STATE_IDENTITY_FILE=/dev/null"},
		"stateLease":              {"state", "show", "STATE_LEASE=1s"},
	} {
		if r := execute(t, t.Context(), dir, "", args...); r.code != ExitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%v: exit %d, want %q\n%s", args, r.code, says, r.stderr)
		}
	}
	if text := folderContents(t, dir); text != before {
		t.Errorf("bad usage has made\n%s", text)
	}
}
