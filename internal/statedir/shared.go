package statedir

import (
	"path"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/recovery/records"
)

// Entries of the state folder that concern this machine alone.
const (
	SyncedFile = "synced.json" // what of the folder is in the configured store: package remotestate
	AsideName  = "set-aside"   // the folder's files before the store's took their place
)

// Shared reports whether an entry of the folder, by its path with slashes, is a part of the cluster's state that a run
// on another machine needs: not the lab, the records of runs, locks, and what is about to get another name.
func Shared(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	base := path.Base(name)
	switch {
	case slices.Contains([]string{LabFolder, RunsFolder, ServeFolder, EventsFile, setAsideName, halfAsideName, SyncedFile,
		AsideName}, first):
		return false
	case base == JournalLock, strings.HasSuffix(base, ".tmp"),
		strings.HasPrefix(base, ".") && strings.HasSuffix(base, ".new"):
		return false
	case base == records.SnapshotFile: // too large; a restore takes it out of the backup again
		return false
	}
	return true
}
