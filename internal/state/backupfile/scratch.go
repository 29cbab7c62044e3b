package backupfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/flow"
)

const (
	// scratchPrefix begins the names of scratch folders.
	scratchPrefix = "slipway-backup-"
	scratchLock   = "lock"
	// scratchYoung is the age up to which the process that made a folder may not have locked it yet.
	scratchYoung = time.Minute
)

// newScratch makes a folder for a backup's etcd, which contains every secret of a cluster. remove deletes it. The
// folder of a process that was killed is deleted by the next one: a running process has the lock of its folder.
func newScratch(ctx context.Context) (dir string, remove func() error, err error) {
	removeAbandonedScratch(ctx)
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, fmt.Errorf("create a scratch folder in %s (TMPDIR names another place): %w", os.TempDir(), err)
	}
	unlock, err := flow.LockFile(ctx, filepath.Join(dir, scratchLock))
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock the scratch folder: %w", err), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), unlock()) }, nil
}

// removeAbandonedScratch deletes what it is permitted to: folders of other users stay.
func removeAbandonedScratch(ctx context.Context) {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), scratchPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < scratchYoung {
			continue
		}
		if unlock, err := flow.LockFile(ctx, filepath.Join(dir, scratchLock)); err == nil {
			_ = os.RemoveAll(dir)
			_ = unlock()
		}
	}
}
