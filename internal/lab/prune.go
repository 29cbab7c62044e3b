package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
)

// prune removes the sets of upstream programs other than the one in bin that no
// lab runs and no process builds.
func (b *builder) prune(ctx context.Context, bin string, say flow.Say) error {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return fmt.Errorf("look for other versions of the lab's programs: %w", err)
	}
	for _, e := range entries {
		home := filepath.Join(b.cache, e.Name())
		if !e.IsDir() || home == filepath.Dir(bin) {
			continue
		}
		if err := pruneSet(ctx, home, say); err != nil {
			return fmt.Errorf("remove %s: %w", home, err)
		}
	}
	return nil
}

// pruneSet removes one set. Who builds it has its lock file, and a lab that runs
// it holds a lock on its folder.
func pruneSet(ctx context.Context, home string, say flow.Say) (err error) {
	if strings.HasSuffix(home, prunedSuffix) { // of a prune that was killed
		return os.RemoveAll(home)
	}
	unlock, err := flow.LockFile(ctx, home+".lock")
	if held, ok := errors.AsType[*flow.LockedError](err); ok {
		say("%s stays: process %d is building it", home, held.PID)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	bin, err := os.Open(filepath.Join(home, "bin"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // without one it was never finished
		return err
	}
	if err == nil {
		defer bin.Close()
		err := syscall.Flock(int(bin.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			say("%s stays: a lab runs it", home)
			return nil
		}
		if err != nil {
			return err
		}
	}
	// Renamed first, so that a set of this name is whole or not there.
	gone := home + prunedSuffix
	if err := os.Rename(home, gone); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	say("removed %s", home)
	return nil
}

// prunedSuffix marks what is being removed.
const prunedSuffix = ".pruned"
