package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/records"
)

// Entries of the state folder that concern this machine alone.
const (
	SyncedFile = "synced.json" // what of the folder is in the configured store: package remotestate
	AsideName  = "set-aside"   // the folder's files, changed without the store, before the store's took their place
	// ReplacedName is for the folder's files, as the store had them, before newer ones of the store took their place.
	ReplacedName = "replaced"
	// UnfinishedSuffix ends the name of a folder of files that are being set aside.
	UnfinishedSuffix = ".unfinished"
	viewName         = "store-view"
)

// View is a folder in the state folder, with what a store has in place of the state folder's files, for commands that
// only look.
func (s Dir) View() Dir { return Dir(s.Path(viewName)) }

// Link has a view show what of its state folder concerns this machine alone.
func (s Dir) Link(state string) error {
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return err
	}
	for _, name := range []string{LabFolder, RunsFolder, ServeFolder, EventsFile, JournalLock} {
		target, err := filepath.Rel(string(s), filepath.Join(state, name))
		if err != nil {
			return err
		}
		if err := os.Symlink(target, s.Path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Shared reports whether an entry of the folder, by its path with slashes, is a part of the cluster's state that a run
// on another machine needs: not the lab, the records of runs, locks, and what is about to get another name.
func Shared(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	base := path.Base(name)
	switch {
	case slices.Contains([]string{LabFolder, RunsFolder, ServeFolder, EventsFile, setAsideName, halfAsideName, SyncedFile,
		AsideName, AsideName + UnfinishedSuffix, ReplacedName, ReplacedName + UnfinishedSuffix, viewName}, first):
		return false
	case base == JournalLock, strings.HasSuffix(base, ".tmp"),
		strings.HasPrefix(base, ".") && strings.HasSuffix(base, ".new"):
		return false
	case base == records.SnapshotFile: // too large; a restore takes it out of the backup again
		return false
	}
	return true
}
