package cli

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
	// scratchYoung is how old a folder is at least whose maker has certainly locked
	// it, if he lives.
	scratchYoung = time.Minute
)

// newScratch makes a folder for a backup's etcd, with every secret of a cluster
// in it. remove takes it away; where a run was killed before that, the next one
// does: whoever lives has the lock of his folder.
func newScratch(ctx context.Context) (dir string, remove func() error, err error) {
	removeAbandonedScratch(ctx)
	if dir, err = os.MkdirTemp("", scratchPrefix); err != nil {
		return "", nil, fmt.Errorf("make a scratch folder: %w", err)
	}
	unlock, err := flow.LockFile(ctx, filepath.Join(dir, scratchLock))
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("lock the scratch folder: %w", err), os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), unlock()) }, nil
}

// removeAbandonedScratch removes what it may: another user's folders stay.
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
