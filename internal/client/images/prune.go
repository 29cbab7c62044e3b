package images

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/slipway-k8s/slipway/flow"
)

// Prune deletes the images that are not among those to keep, and what no image needs. Keep has what references stand
// for, Image.Digest. What a process is fetching or unpacking stays, and so does an image of which a process holds a
// program by a shared lock (flock) on its file. The lock file keeps its records.
func (s *Store) Prune(ctx context.Context, keep []string, say flow.Say) error {
	held, err := s.held()
	if err != nil {
		return fmt.Errorf("find the images whose programs are in use: %w", err)
	}
	kept := map[string]bool{}
	for _, digest := range append(held, keep...) {
		blobs, manifest := s.partsOf(digest)
		for _, b := range blobs {
			kept[s.blobPath(b)] = true
		}
		kept[s.root(manifest)] = true
	}
	var freed int64
	for _, pattern := range []string{filepath.Join("roots", "*"), filepath.Join("blobs", "*", "*")} {
		found, err := filepath.Glob(filepath.Join(s.Dir, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if kept[path] || strings.HasSuffix(path, ".lock") {
				continue
			}
			size, err := s.pruneOne(ctx, path)
			if err != nil {
				return fmt.Errorf("remove %s: %w", path, err)
			}
			freed += size
		}
	}
	if freed > 0 {
		say("removed %d MB of images from %s", freed>>20, s.Dir)
	}
	return nil
}

// held are the digests of the recorded images of which a process holds a program.
func (s *Store) held() (digests []string, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	entries, err := s.readLock()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		_, manifest := s.partsOf(e.digest)
		inUse := false
		// What cannot be walked is of no image that is unpacked.
		_ = filepath.WalkDir(s.root(manifest), func(file string, d fs.DirEntry, walkErr error) error {
			if walkErr != nil || inUse || !d.Type().IsRegular() {
				return nil
			}
			inUse, err = heldByProcess(file)
			return err
		})
		if err != nil {
			return nil, err
		}
		if inUse {
			digests = append(digests, e.digest)
		}
	}
	return digests, nil
}

// heldByProcess tells whether a process holds a file by a lock (flock).
func heldByProcess(file string) (bool, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

// partsOf are the blobs of an image, and the digest of its manifest.
func (s *Store) partsOf(digest string) (blobs []v1.Hash, manifest v1.Hash) {
	if hash, err := v1.NewHash(digest); err == nil {
		blobs = append(blobs, hash)
	}
	m, manifest, err := s.cachedManifest(digest)
	if err != nil { // it is not cached whole: nothing of it is worth keeping
		return nil, manifest
	}
	blobs = append(blobs, manifest, m.Config.Digest)
	for _, layer := range m.Layers {
		blobs = append(blobs, layer.Digest)
	}
	return blobs, manifest
}

// pruneOne removes a blob or a folder, or what an ended process left of one. Who works on it holds its lock.
func (s *Store) pruneOne(ctx context.Context, path string) (size int64, err error) {
	of := path
	for _, suffix := range []string{".partial", ".unfinished"} {
		of = strings.TrimSuffix(of, suffix)
	}
	unlock, err := flow.LockFile(ctx, of+".lock")
	if _, held := errors.AsType[*flow.LockedError](err); held {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	size = sizeOf(path)
	gone := path
	if filepath.Base(filepath.Dir(path)) == "roots" {
		// Renamed first, so that a folder of this name is whole or not there.
		gone = of + ".unfinished"
		if path != gone {
			if err := errors.Join(os.RemoveAll(gone), os.Rename(path, gone)); err != nil {
				return 0, errors.Join(err, unlock())
			}
		}
	}
	return size, errors.Join(os.RemoveAll(gone), unlock())
}

// sizeOf adds up the files below a path.
func sizeOf(path string) (size int64) {
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size
}
