// Package statedir is the state folder of a cluster: whose it is, its journal, and the files of its runs.
package statedir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/platform"
)

// The two environments that a state folder can belong to.
const (
	EnvironmentLab     = "lab"
	EnvironmentHetzner = "hetzner"
)

// Entries of the state folder, besides the journal and what the steps write.
const (
	EnvironmentFile = "world"        // which environment the folder belongs to
	LabFolder       = "lab"          // the lab's own state
	RunsFolder      = "runs"         // a folder for each run: events.jsonl, effects.jsonl, setup.json and log
	EventsFile      = "events.jsonl" // in the folder of a run; a link to the last run's beside it
	logFile         = "log"
	setAsideName    = "rehearsal" // where the state of a rehearsal goes when the real thing begins
	halfAsideName   = "rehearsal.unfinished"
	RunsKept        = 50
	JournalFile     = "journal.json" // flow's
	JournalLock     = "journal.lock" // flow's; stays where it is
	StateFolderIn   = ".slipway"
	ServeFolder     = "serve" // what the target serve knows of the runs that it started
)

// Dir is where a bootstrap keeps what it knows, as an absolute path.
type Dir string

// New is the folder that --state-dir names; without it that of the cluster in the working directory.
func New(dir, clusterName, workDir string) Dir {
	dir = cmp.Or(dir, filepath.Join(StateFolderIn, clusterName))
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	return Dir(filepath.Clean(dir))
}

func (s Dir) Path(name string) string { return filepath.Join(string(s), name) }
func (s Dir) Lab() string             { return s.Path(LabFolder) }
func (s Dir) Files() platform.Files   { return platform.FilesIn(string(s)) }
func (s Dir) Journal() flow.Journal   { return flow.Folder(string(s)) }

// has reports whether there is an entry of this name.
func (s Dir) has(name string) bool {
	_, err := os.Stat(s.Path(name))
	return err == nil
}

// Environment is the environment that the folder belongs to; "" for none yet.
func (s Dir) Environment() (string, error) {
	data, err := s.Files().Read(EnvironmentFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// Claim makes the folder belong to a cluster in an environment. What a rehearsal left is set aside when the real thing
// begins; it says so. The state of a real cluster, once anything was made for it, does not make room for a rehearsal,
// and that of one cluster not for another. The folder changes hands under the journal's lock, not under the feet of a
// run.
func (s Dir) Claim(ctx context.Context, of Owner, environment string, note func(format string, args ...any)) (err error) {
	if err := s.checkAccess(); err != nil {
		return err
	}
	if s.claimedBy(of, environment) == nil && s.recordsVersions(ctx, of) {
		return nil
	}
	unlock, err := s.Journal().Lock(ctx)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		err = fmt.Errorf("%w: work in a folder that this user can write to, or name one with --state-dir", err)
	}
	if err != nil {
		return fmt.Errorf("take the state folder: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := s.CheckOwner(ctx, of); err != nil {
		return err
	}
	was, err := s.Environment()
	switch {
	case err != nil:
		return fmt.Errorf("read the state folder: %w", err)
	case was == EnvironmentHetzner && environment == EnvironmentLab:
		made, err := s.made(ctx)
		if err != nil {
			return err
		}
		if made {
			return usage.Errorf("%s holds the state of a real cluster: rehearse in another folder (--state-dir) or under "+
				"another name (CLUSTER_NAME)", s)
		}
	case was == EnvironmentLab && environment == EnvironmentHetzner:
		if err := s.setAside(); err != nil {
			return fmt.Errorf("set aside what the rehearsal left: %w", err)
		}
		note("%s held the state of a rehearsal; it lies in %s now", s, s.Path(setAsideName))
	}
	if err := s.recordOwner(ctx, of); err != nil {
		return err
	}
	return s.Files().Write(EnvironmentFile, []byte(environment+"\n"))
}

// claimedBy is nil where the folder's record names this cluster and environment.
func (s Dir) claimedBy(of Owner, environment string) error {
	now, err := s.Environment()
	if err != nil {
		return err
	}
	record, err := ownership.Read(s.Files())
	if err != nil {
		return err
	}
	if now != environment || record == nil || !of.is(record) {
		return usage.Errorf("another run has just taken %s (for %q, not %q, or for another cluster than %s): name "+
			"another folder (--state-dir)",
			s, now, environment, of.Cluster)
	}
	return nil
}

// Claimed is the folder's journal for a run of one cluster in one environment. Its lock is refused where the folder has
// come to belong to another one since it was claimed.
func (s Dir) Claimed(of Owner, environment string, journal flow.Journal) flow.Journal {
	return claimedJournal{journal, s, of, environment}
}

type claimedJournal struct {
	flow.Journal
	state       Dir
	of          Owner
	environment string
}

func (j claimedJournal) Lock(ctx context.Context) (func() error, error) {
	unlock, err := j.Journal.Lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.state.claimedBy(j.of, j.environment); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// Append implements flow.Appender.
func (j claimedJournal) Append(ctx context.Context, change flow.Snapshot) error {
	return flow.Append(ctx, j.Journal, change)
}

// made reports whether the journal knows of a step that makes something.
func (s Dir) made(ctx context.Context) (bool, error) {
	snapshot, err := s.Journal().Load(ctx)
	for name := range snapshot.Steps {
		if name != lookingStep {
			return true, nil
		}
	}
	return false, err
}

// lookingStep is the one that only looks: image makes servers and snapshots.
const lookingStep = "preflight"

// setAside moves everything but the lab, which may be up, into a folder of its
// own, in place of what was there. Until that is whole it has another name: one
// that was interrupted is resumed.
func (s Dir) setAside() error {
	half, aside := s.Path(halfAsideName), s.Path(setAsideName)
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		switch e.Name() {
		case LabFolder, ServeFolder, setAsideName, halfAsideName, JournalLock, EnvironmentFile:
			// the last is overwritten: the folder belongs to a cluster at any time
			return true
		}
		return false
	})
	if len(entries) == 0 && !s.has(halfAsideName) {
		return nil // the one that was killed was done
	}
	if err := os.MkdirAll(half, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		to := filepath.Join(half, e.Name())
		if err := os.RemoveAll(to); err != nil { // a rehearsal that came after the killed run made its own
			return err
		}
		if err := os.Rename(s.Path(e.Name()), to); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	return os.Rename(half, aside)
}

// Retire puts the journal of a cluster that is gone aside, as a record, so that the next bootstrap starts from nothing.
// It says where, as the end of a sentence.
func (s Dir) Retire(now time.Time) (string, error) {
	record := "journal.destroyed-" + now.UTC().Format("20060102T150405Z") + ".json"
	if !s.has(JournalFile) {
		return "", nil
	}
	return "; its journal is kept as " + s.Path(record), s.Files().Move(JournalFile, record)
}

// RunFiles are the files of one run.
type RunFiles struct {
	Events, Effects, Log *os.File
}

// OpenRun makes the folder of a run and points the link events.jsonl at its
// events. Of older runs the newest are kept.
func (s Dir) OpenRun(id string) (*RunFiles, error) {
	dir := filepath.Join(RunsFolder, id)
	if err := os.MkdirAll(s.Path(dir), 0o700); err != nil {
		return nil, fmt.Errorf("create the run's folder: %w", err)
	}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(s.Path(filepath.Join(dir, name)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	events, err := open(EventsFile)
	if err != nil {
		return nil, err
	}
	effects, err := open(EffectsFile)
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	log, err := open(logFile)
	if err != nil {
		return nil, errors.Join(err, events.Close(), effects.Close())
	}
	files := &RunFiles{Events: events, Effects: effects, Log: log}
	return files, errors.Join(s.link(filepath.Join(dir, EventsFile), EventsFile, id), s.prune(id))
}

// Close closes the files of the run.
func (f *RunFiles) Close() error {
	return errors.Join(f.Events.Close(), f.Effects.Close(), f.Log.Close())
}

// link replaces a symbolic link in one piece; another run may be doing the same.
func (s Dir) link(target, name, id string) error {
	temporary := s.Path(name + "." + id)
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, s.Path(name))
}

// prune removes the oldest runs; their names sort by time. This one stays: where
// the clock was set back it is not the newest of them.
func (s Dir) prune(id string) error {
	entries, err := os.ReadDir(s.Path(RunsFolder))
	if err != nil {
		return err
	}
	var others []string
	for _, e := range entries {
		if e.Name() != id {
			others = append(others, e.Name())
		}
	}
	slices.Sort(others)
	for _, name := range others[:max(0, len(others)+1-RunsKept)] {
		if err := os.RemoveAll(s.Path(filepath.Join(RunsFolder, name))); err != nil {
			return err
		}
	}
	return nil
}

// EffectsFile is, in the folder of a run, what the run changed and where.
const EffectsFile = "effects.jsonl"

// VerbRetire is the effect of putting the journal of a destroyed cluster aside.
const VerbRetire = "retire"
