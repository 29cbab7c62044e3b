package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
)

func TestStateFolder(t *testing.T) {
	for name, tc := range map[string]struct{ flag, want string }{
		"default":  {"", "/somewhere/.slipway/k8s"},
		"relative": {"x/../y", "/somewhere/y"},
		"absolute": {"/z", "/z"},
	} {
		if got := New(tc.flag, "k8s", "/somewhere"); string(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// record writes a journal that knows of one step.
func record(t *testing.T, s Dir, step string) {
	t.Helper()
	err := s.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{step: {State: flow.StateDone}}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestClaim(t *testing.T) {
	s := Dir(filepath.Join(t.TempDir(), "state"))
	var notes []string
	note := func(format string, _ ...any) { notes = append(notes, format) }
	claim := func(environment string) error {
		notes = nil
		return s.Claim(t.Context(), Owner{Cluster: "k8s"}, environment, note)
	}
	if err := claim(EnvironmentLab); err != nil || len(notes) != 0 {
		t.Fatalf("a new folder: %v, %q", err, notes)
	}
	if info, err := os.Stat(string(s)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder is %v, %v", info.Mode(), err)
	}
	record(t, s, "apply")
	if err := os.MkdirAll(s.Lab(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := claim(EnvironmentLab); err != nil || !s.has("journal.json") {
		t.Fatalf("its own folder: %v", err)
	}

	// The real thing begins with nothing of the rehearsal's, which is kept beside, and the lab stays where it is.
	if err := claim(EnvironmentHetzner); err != nil || len(notes) != 1 {
		t.Fatalf("after a rehearsal: %v, %q", err, notes)
	}
	if s.has("journal.json") || !s.has("rehearsal/journal.json") || !s.has(LabFolder) {
		t.Error("the rehearsal was not set aside")
	}

	// As long as nothing was made for it, the folder can go back.
	record(t, s, "preflight")
	if err := claim(EnvironmentLab); err != nil {
		t.Errorf("before anything was made: %v", err)
	}
	if err := claim(EnvironmentHetzner); err != nil {
		t.Fatal(err)
	}
	record(t, s, "image") // which makes a server and a snapshot
	err := claim(EnvironmentLab)
	if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("a rehearsal over a real cluster: %v", err)
	}
	if environment, err := s.Environment(); environment != EnvironmentHetzner || err != nil || !s.has("journal.json") {
		t.Errorf("the folder belongs to %q, %v", environment, err)
	}
}

// A run that is killed while it sets a rehearsal aside loses none of it: the next one resumes, wherever that was.
func TestClaimGoesOnSettingAside(t *testing.T) {
	for name, killed := range map[string]func(t *testing.T, s Dir){
		"half way": func(t *testing.T, s Dir) {
			move(t, s, "journal.json", "rehearsal.unfinished/journal.json")
		},
		"with all moved": func(t *testing.T, s Dir) {
			move(t, s, "journal.json", "rehearsal.unfinished/journal.json")
			move(t, s, RunsFolder, "rehearsal.unfinished/runs")
			if err := os.RemoveAll(s.Path(setAsideName)); err != nil {
				t.Fatal(err)
			}
		},
		"before the folder changed hands": func(t *testing.T, s Dir) {
			if err := s.setAside(); err != nil {
				t.Fatal(err)
			}
		},
		"and a rehearsal came between": func(t *testing.T, s Dir) {
			writeFile(t, s.Path("rehearsal.unfinished/journal.json"), "the older one's")
			writeFile(t, s.Path("rehearsal.unfinished/runs/older/log"), "the older one's")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Dir(filepath.Join(t.TempDir(), "state"))
			if err := s.Claim(t.Context(), Owner{Cluster: "k8s"}, EnvironmentLab, quiet); err != nil {
				t.Fatal(err)
			}
			record(t, s, "apply")
			writeFile(t, s.Path("runs/one/log"), "what it said")
			writeFile(t, s.Path("rehearsal/journal.json"), "an older rehearsal's")
			killed(t, s)
			if err := s.Claim(t.Context(), Owner{Cluster: "k8s"}, EnvironmentHetzner, quiet); err != nil {
				t.Fatal(err)
			}
			journal, err := os.ReadFile(s.Path("rehearsal/journal.json"))
			if err != nil || !strings.Contains(string(journal), `"apply"`) {
				t.Errorf("the rehearsal's journal is %s, %v", journal, err)
			}
			if log, err := os.ReadFile(s.Path("rehearsal/runs/one/log")); err != nil || string(log) != "what it said" {
				t.Errorf("its log is %q, %v", log, err)
			}
			for _, gone := range []string{"journal.json", RunsFolder, "rehearsal.unfinished"} {
				if s.has(gone) {
					t.Errorf("%s is left", gone)
				}
			}
		})
	}
}

// move moves a part of a state folder, as a run does that is killed then.
func move(t *testing.T, s Dir, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(s.Path(to)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(s.Path(from), s.Path(to)); err != nil {
		t.Fatal(err)
	}
}

func TestClaimWaitsForNoRun(t *testing.T) {
	s := Dir(t.TempDir())
	if err := s.Claim(t.Context(), Owner{Cluster: "k8s"}, EnvironmentLab, quiet); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Journal().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, ok := errors.AsType[*flow.LockedError](s.Claim(t.Context(), Owner{Cluster: "k8s"}, EnvironmentHetzner, quiet)); !ok {
		t.Error("the state was pulled away from under a run")
	}
	if environment, err := s.Environment(); environment != EnvironmentLab || err != nil {
		t.Errorf("the folder belongs to %q, %v", environment, err)
	}
}

// A real run and a rehearsal that begin at once: the folder of the real one,
// which has made nothing yet, is taken before its run has the lock.
func TestClaimBetweenClaimAndRun(t *testing.T) {
	s := Dir(t.TempDir())
	for _, environment := range []string{EnvironmentHetzner, EnvironmentLab} {
		if err := s.Claim(t.Context(), Owner{Cluster: "k8s"}, environment, quiet); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Claimed(Owner{Cluster: "k8s"}, EnvironmentHetzner, s.Journal()).Lock(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "another run has just taken") {
		t.Errorf("the real run continues in the rehearsal's folder: %v", err)
	}
	unlock, err := s.Claimed(Owner{Cluster: "k8s"}, EnvironmentLab, s.Journal()).Lock(t.Context())
	if err != nil {
		t.Fatalf("the refused run kept the lock: %v", err)
	}
	defer unlock()
	if _, ok := errors.AsType[*flow.LockedError](s.Claim(t.Context(), Owner{Cluster: "k8s"}, EnvironmentHetzner, quiet)); !ok {
		t.Error("the folder changed hands under a run")
	}
}

func TestRunFiles(t *testing.T) {
	s := Dir(t.TempDir())
	for i := range RunsKept + 3 {
		files, err := s.OpenRun("2026-" + string(rune('A'+i)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := files.Events.WriteString("event\n"); err != nil {
			t.Fatal(err)
		}
		if err := files.Close(); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := os.ReadDir(s.Path(RunsFolder))
	if err != nil || len(runs) != RunsKept || runs[0].Name() != "2026-D" {
		t.Errorf("%d runs are kept, from %v, %v", len(runs), runs[0], err)
	}
	if data, err := os.ReadFile(s.Path(EventsFile)); err != nil || string(data) != "event\n" {
		t.Errorf("the last run's events: %q, %v", data, err)
	}
	entries, err := os.ReadDir(string(s))
	if err != nil || len(entries) != 2 {
		t.Errorf("in the folder are %v, %v", entries, err)
	}
}

// A folder without a namespace in its record, as older releases wrote it, is of the default namespace, and a cluster
// keeps its namespace once anything was made for it.
func TestNamespaceOfFolder(t *testing.T) {
	s := Dir(filepath.Join(t.TempDir(), "state"))
	quiet := func(string, ...any) {}
	if err := (ownership.Record{Cluster: "k8s"}).Write(s.Files()); err != nil {
		t.Fatal(err)
	}
	there, elsewhere := Owner{Cluster: "k8s", Namespace: config.DefaultNamespace}, Owner{Cluster: "k8s", Namespace: "team-a"}
	if err := s.CheckOwner(t.Context(), there); err != nil {
		t.Error(err)
	}
	if err := s.Claim(t.Context(), elsewhere, EnvironmentHetzner, quiet); err != nil {
		t.Errorf("before anything was made: %v", err)
	}
	if r, err := ownership.Read(s.Files()); err != nil || r.Namespace != "team-a" {
		t.Errorf("recorded: %+v, %v", r, err)
	}
	record(t, s, "kind-create")
	before, err := s.Files().Read(ownership.File)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Claim(t.Context(), there, EnvironmentHetzner, quiet)
	if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "set NAMESPACE=team-a") {
		t.Errorf("another namespace: %v", err)
	}
	if after, err := s.Files().Read(ownership.File); err != nil || string(after) != string(before) {
		t.Errorf("the record was changed: %s, %v", after, err)
	}
	if _, err := s.Claimed(there, EnvironmentHetzner, s.Journal()).Lock(t.Context()); err == nil {
		t.Error("the journal is locked for another namespace")
	}
	unlock, err := s.Claimed(elsewhere, EnvironmentHetzner, s.Journal()).Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

// A folder that cannot be written to, as the root of a container image, says what to do. For root there is none such.
func TestClaimWhereNothingCanBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root can write everywhere")
	}
	parent := t.TempDir()
	if err := os.Chmod(parent, 0o500); err != nil {
		t.Fatal(err)
	}
	s := Dir(filepath.Join(parent, ".slipway", "k8s"))
	err := s.Claim(t.Context(), Owner{Cluster: "k8s", Namespace: config.DefaultNamespace}, EnvironmentHetzner, func(string, ...any) {})
	if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("it says %v", err)
	}
}
