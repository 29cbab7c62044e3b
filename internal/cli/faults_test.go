package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// A state folder that something is wrong with stops the command before it asks for or makes anything, says what and
// what to do, and stays as it was; once that is done, the same command resumes.
func TestFaultsOfTheStateFolder(t *testing.T) {
	var seen []string
	s, f := stateWithFakeLab(t)
	f.Info.HetznerEndpoint = deaf(t, &seen)
	dir := t.TempDir()
	t.Chdir(dir)
	do := func() ran { return execute(t, t.Context(), dir, "", "preflight", "--lab", "--state-dir", string(s)) }
	recordStep(t, s, "image")
	whole, err := os.ReadFile(s.Path("journal.json"))
	if err != nil {
		t.Fatal(err)
	}
	full := func() error {
		if _, err := os.Stat("/dev/full"); err != nil {
			t.Skip("this machine has no /dev/full")
		}
		return os.Symlink("/dev/full", s.Path("journal.json.tmp"))
	}
	for name, tt := range map[string]struct {
		journal []byte
		and     func() error
		says    []string
	}{
		"truncated": {journal: whole[:len(whole)/2], says: []string{"damaged", "move it away"}},
		"a flipped bit": {journal: bytes.Replace(whole, []byte(`"image"`), []byte(`"imagd"`), 1),
			says: []string{"does not match its sum", "move it away"}},
		"a newer version": {journal: []byte(`{"format": 7}`), says: []string{"format 7", "newer program"}},
		"a full disk":     {journal: whole, and: full, says: []string{"no space left on device", "run again", "is kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen = nil
			if err := os.WriteFile(s.Path("journal.json"), tt.journal, 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.and != nil {
				if err := tt.and(); err != nil {
					t.Fatal(err)
				}
			}
			r := do()
			if r.code != ExitFailed || len(seen) > 0 {
				t.Errorf("exit %d, asked %v", r.code, seen)
			}
			for _, say := range append(tt.says, string(s)) {
				if !strings.Contains(r.stderr, say) {
					t.Errorf("it does not say %q:\n%s", say, r.stderr)
				}
			}
			if now, err := os.ReadFile(s.Path("journal.json")); err != nil || !bytes.Equal(now, tt.journal) {
				t.Errorf("the journal is changed: %s, %v", now, err)
			}
			for _, name := range []string{"journal.json", "journal.json.tmp"} { // as it says
				_ = os.Remove(s.Path(name))
			}
			if r := do(); !strings.Contains(r.stderr, "unauthorized") || len(seen) == 0 {
				t.Errorf("afterwards: %+v", r)
			}
		})
	}
}

// Under a clock that was set back a run is not the newest by its name; it is
// not taken for an old one.
func TestAClockSetBackDoesNotPruneTheRunItself(t *testing.T) {
	s := statedir.Dir(t.TempDir())
	open := func(at time.Time) string {
		id := fmt.Sprintf("%s-1", at.UTC().Format("20060102T150405.000Z"))
		files, err := s.OpenRun(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
		return id
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first := open(at)
	for i := range statedir.RunsKept {
		open(at.Add(time.Duration(i+1) * time.Hour))
	}
	back := open(at.AddDate(-1, 0, 0))
	entries, err := os.ReadDir(s.Path(statedir.RunsFolder))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Contains(names, back) || slices.Contains(names, first) || len(names) != statedir.RunsKept {
		t.Errorf("%d runs are left: %v", len(names), names)
	}
	if _, err := os.Stat(filepath.Join(string(s), statedir.EventsFile)); err != nil {
		t.Errorf("the link to the run's events: %v", err)
	}
}

func TestStatusUnderAClockSetBack(t *testing.T) {
	var out bytes.Buffer
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	err := status.Report{State: "state",
		Steps: []status.Step{{Step: "image", State: string(flow.StateDone), Started: began,
			Ended: began.Add(-time.Hour)}}}.Print(&out, 0)
	if err != nil || strings.Contains(out.String(), "-1h") || !strings.Contains(out.String(), "0s") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
