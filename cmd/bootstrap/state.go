package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/steps"
)

// The two worlds that a state folder can belong to.
const (
	worldLab     = "lab"
	worldHetzner = "hetzner"
)

// Entries of the state folder, besides the journal and what the steps write.
const (
	worldFile     = "world"        // which world the folder belongs to
	labFolder     = "lab"          // the lab's own state
	runsFolder    = "runs"         // a folder for each run: events.jsonl, effects.jsonl, setup.json and log
	eventsFile    = "events.jsonl" // in the folder of a run; a link to the last run's beside it
	logFile       = "log"
	setAsideName  = "rehearsal" // where the state of a rehearsal goes when the real thing begins
	halfAsideName = "rehearsal.unfinished"
	runsKept      = 50
	journalFile   = "journal.json" // flow's
	journalLock   = "journal.lock" // flow's; stays where it is
	stateFolderIn = ".slipway"
)

// stateFolder is where a bootstrap keeps what it knows, as an absolute path.
type stateFolder string

// newStateFolder is the folder that --state-dir names; without it that of the cluster in the working directory.
func newStateFolder(dir, clusterName, workDir string) stateFolder {
	if dir == "" {
		dir = filepath.Join(stateFolderIn, clusterName)
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(workDir, dir)
	}
	return stateFolder(filepath.Clean(dir))
}

func (s stateFolder) path(name string) string { return filepath.Join(string(s), name) }
func (s stateFolder) lab() string             { return s.path(labFolder) }
func (s stateFolder) files() steps.Files      { return steps.FilesIn(string(s)) }
func (s stateFolder) journal() flow.Journal   { return flow.Folder(string(s)) }

// has tells whether there is an entry of this name.
func (s stateFolder) has(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

// world is the world that the folder belongs to; "" for none yet.
func (s stateFolder) world() (string, error) {
	data, err := s.files().Read(worldFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// claim makes the folder belong to a cluster in a world. What a rehearsal left is set aside
// when the real thing begins; it says so. The state of a real cluster, once
// anything was made for it, does not make room for a rehearsal, and that of one cluster not for another. The folder
// changes hands under the journal's lock, not under the feet of a run.
func (s stateFolder) claim(ctx context.Context, cluster, world string, note func(format string, args ...any)) (err error) {
	if s.claimedBy(cluster, world) == nil {
		return nil
	}
	unlock, err := s.journal().Lock(ctx)
	if err != nil {
		return fmt.Errorf("take the state folder: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := s.checkOwner(ctx, cluster); err != nil {
		return err
	}
	was, err := s.world()
	switch {
	case err != nil:
		return fmt.Errorf("read the state folder: %w", err)
	case was == worldHetzner && world == worldLab:
		made, err := s.made(ctx)
		if err != nil {
			return err
		}
		if made {
			return usagef("%s holds the state of a real cluster: rehearse in another folder (--state-dir) or under another name (CLUSTER_NAME)", s)
		}
	case was == worldLab && world == worldHetzner:
		if err := s.setAside(); err != nil {
			return fmt.Errorf("set aside what the rehearsal left: %w", err)
		}
		note("%s held the state of a rehearsal; it lies in %s now", s, s.path(setAsideName))
	}
	if err := s.recordOwner(ctx, cluster); err != nil {
		return err
	}
	return s.files().Write(worldFile, []byte(world+"\n"))
}

// claimedBy is nil where the folder's record names this cluster and world.
func (s stateFolder) claimedBy(cluster, world string) error {
	now, err := s.world()
	if err != nil {
		return err
	}
	record, err := ownership.Read(s.files())
	if err != nil {
		return err
	}
	if now != world || record == nil || record.Cluster != cluster {
		return usagef("another run has just taken %s for itself (world %q, not %q, or another cluster than %s): name another folder (--state-dir)",
			s, now, world, cluster)
	}
	return nil
}

// claimed is the folder's journal for a run of one cluster in one world. Its lock is refused where the
// folder has come to belong to another one since it was claimed.
func (s stateFolder) claimed(cluster, world string, journal flow.Journal) flow.Journal {
	return claimedJournal{journal, s, cluster, world}
}

type claimedJournal struct {
	flow.Journal
	state          stateFolder
	cluster, world string
}

func (j claimedJournal) Lock(ctx context.Context) (func() error, error) {
	unlock, err := j.Journal.Lock(ctx)
	if err != nil {
		return nil, err
	}
	if err := j.state.claimedBy(j.cluster, j.world); err != nil {
		return nil, errors.Join(err, unlock())
	}
	return unlock, nil
}

// made tells whether the journal knows of a step that makes something.
func (s stateFolder) made(ctx context.Context) (bool, error) {
	snapshot, err := s.journal().Load(ctx)
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
// that was killed on the way is gone on with.
func (s stateFolder) setAside() error {
	half, aside := s.path(halfAsideName), s.path(setAsideName)
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		switch e.Name() {
		case labFolder, setAsideName, halfAsideName, journalLock, worldFile: // the last is overwritten: the folder belongs to somebody at any time
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
		if err := os.Rename(s.path(e.Name()), to); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(aside); err != nil {
		return err
	}
	return os.Rename(half, aside)
}

// retire puts the journal of a cluster that is gone aside, as a record, so that
// the next bootstrap begins anew. It says where, as the end of a sentence.
func (s stateFolder) retire(now time.Time) (string, error) {
	record := "journal.destroyed-" + now.UTC().Format("20060102T150405Z") + ".json"
	if !s.has(journalFile) {
		return "", nil
	}
	return "; its journal is kept as " + s.path(record), s.files().Move(journalFile, record)
}

// runFiles are the files of one run.
type runFiles struct {
	events, effects, log *os.File
}

// openRun makes the folder of a run and points the link events.jsonl at its
// events. Of older runs the newest are kept.
func (s stateFolder) openRun(id string) (*runFiles, error) {
	dir := filepath.Join(runsFolder, id)
	if err := os.MkdirAll(s.path(dir), 0o700); err != nil {
		return nil, fmt.Errorf("make the run's folder: %w", err)
	}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(s.path(filepath.Join(dir, name)), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	events, err := open(eventsFile)
	if err != nil {
		return nil, err
	}
	effects, err := open(effectsFile)
	if err != nil {
		return nil, errors.Join(err, events.Close())
	}
	log, err := open(logFile)
	if err != nil {
		return nil, errors.Join(err, events.Close(), effects.Close())
	}
	files := &runFiles{events: events, effects: effects, log: log}
	return files, errors.Join(s.link(filepath.Join(dir, eventsFile), eventsFile, id), s.prune(id))
}

func (f *runFiles) close() error {
	return errors.Join(f.events.Close(), f.effects.Close(), f.log.Close())
}

// link replaces a symbolic link in one piece; another run may be doing the same.
func (s stateFolder) link(target, name, id string) error {
	temporary := s.path(name + "." + id)
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, s.path(name))
}

// prune removes the oldest runs; their names sort by time. This one stays: where
// the clock was set back it is not the newest of them.
func (s stateFolder) prune(id string) error {
	entries, err := os.ReadDir(s.path(runsFolder))
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
	for _, name := range others[:max(0, len(others)+1-runsKept)] {
		if err := os.RemoveAll(s.path(filepath.Join(runsFolder, name))); err != nil {
			return err
		}
	}
	return nil
}

// effectsFile is, in the folder of a run, what the run changed and where.
const effectsFile = "effects.jsonl"

// verbRetire is the effect of putting the journal of a destroyed cluster aside.
const verbRetire = "retire"
