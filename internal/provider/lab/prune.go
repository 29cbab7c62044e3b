package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/provider/lab/originals"
)

// prune removes the sets of upstream programs other than those in bins that no lab runs and no process makes, the
// released programs that are neither configured nor run, and the images that no set is made of. The first of bins is
// the lab's own set.
func (b *builder) prune(ctx context.Context, bins []string, say flow.Say) error {
	if _, err := pruneSets(ctx, b.cache, bins, say); err != nil {
		return err
	}
	digests, fetching, err := b.pruneOriginals(ctx, bins[0], say)
	if err != nil || fetching {
		return err
	}
	return b.sets.prune(ctx, bins, digests, say)
}

// pruneOriginals removes the released programs that are neither configured nor run by a lab, and returns the digests of
// the images of those that are left. While another process fetches some, everything stays.
func (b *builder) pruneOriginals(ctx context.Context, bin string, say flow.Say) (digests []string, fetching bool,
	err error) {
	dir := b.released.Dir
	if !Exists(dir) {
		return nil, false, nil
	}
	unlock, err := flow.LockFile(ctx, filepath.Join(dir, fetchLock))
	if held, ok := errors.AsType[*flow.LockedError](err); ok {
		say("%s stays: process %d is fetching released programs", dir, held.PID)
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	var keep []string
	if b.sets.has(bin) {
		if keep, err = b.configuredOriginals(ctx); err != nil {
			return nil, false, err
		}
	}
	left, err := pruneSets(ctx, dir, keep, say)
	for _, home := range left {
		digests = append(digests, originals.Digests(filepath.Join(home, "bin"))...)
	}
	return digests, false, err
}

// prune removes the sets out of images that are not in use, and the images of none but those to keep.
func (s *imageSets) prune(ctx context.Context, bins, keep []string, say flow.Say) (err error) {
	if !Exists(s.dir) {
		return nil
	}
	unlock, err := flow.LockFile(ctx, filepath.Join(s.dir, fetchLock))
	if held, ok := errors.AsType[*flow.LockedError](err); ok {
		say("%s stays: process %d is fetching programs", s.store.Dir, held.PID)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	left, err := pruneSets(ctx, s.dir, bins, say)
	if err != nil {
		return err
	}
	for _, home := range left {
		origins, _ := readOrigins(filepath.Join(home, "bin")) // none: it is not whole
		for _, o := range origins {
			keep = append(keep, o.Digest)
		}
	}
	if err := s.store.Prune(ctx, keep, say); err != nil {
		return fmt.Errorf("remove images that no set of programs is made of: %w", err)
	}
	return nil
}

// pruneSets removes the sets of a folder that are neither in use nor to be kept, and returns those that are left.
func pruneSets(ctx context.Context, sets string, keep []string, say flow.Say) (left []string, err error) {
	entries, err := os.ReadDir(sets)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for other versions of the lab's programs: %w", err)
	}
	for _, e := range entries {
		home := filepath.Join(sets, e.Name())
		if !e.IsDir() {
			continue
		}
		if !slices.Contains(keep, filepath.Join(home, "bin")) {
			if err := pruneSet(ctx, home, say); err != nil {
				return nil, fmt.Errorf("remove %s: %w", home, err)
			}
		}
		if Exists(home) {
			left = append(left, home)
		}
	}
	return left, nil
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
