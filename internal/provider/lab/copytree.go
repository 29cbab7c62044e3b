package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// copied counts what copyTree has copied.
type copied struct {
	Files int
	Bytes int64 // that were written or shared; holes are not
}

// treatment is what copyTree does with a part of a folder.
type treatment int

const (
	copyIt treatment = iota
	leaveIt
	linkIt // by another name for the same file, where the file system can: it is never written, only replaced
)

// beside makes a folder next to another, in which that one is made until it is complete. Such folders of processes that
// ended are removed: they are as large as a lab. So are those with this process's own id: an earlier process had the
// same one, as in a container.
func beside(whole string) (string, error) {
	mark := filepath.Base(whole) + ".unfinished-"
	parent := filepath.Dir(whole)
	entries, err := os.ReadDir(parent)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(strings.TrimPrefix(e.Name(), mark))
		if err != nil || !strings.HasPrefix(e.Name(), mark) || pid != os.Getpid() && statedir.Lives(pid) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(parent, mark+strconv.Itoa(os.Getpid()))
	return dir, os.Mkdir(dir, 0o700)
}

// copyTree copies a folder's folders, files and symbolic links into another
// one, with their permissions. How it treats each, treat says by its path in the
// folder. What is none of the three, as a socket, and what goes away meanwhile
// is left out.
func copyTree(ctx context.Context, to, from string, treat func(path string) treatment) (copied, error) {
	var sum copied
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch treat(below) {
		case leaveIt:
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case linkIt:
			if os.Link(path, filepath.Join(to, below)) == nil {
				sum.Files++
				return nil
			}
		}
		err = sum.entry(filepath.Join(to, below), path, d)
		if errors.Is(err, fs.ErrNotExist) && !Exists(path) {
			return nil
		}
		return err
	})
	if err != nil {
		return sum, fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return sum, nil
}

func (s *copied) entry(to, from string, d fs.DirEntry) error {
	switch d.Type() {
	case fs.ModeDir:
		return os.MkdirAll(to, 0o700) // all that a state folder has are its owner's alone
	case fs.ModeSymlink:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case 0:
		n, err := copyFile(to, from)
		s.Files++
		s.Bytes += n
		return err
	default:
		return nil
	}
}

// copyFile shares the file's blocks where the file system can, and otherwise
// writes all of it but zeros: an etcd's log is mostly that.
func copyFile(to, from string) (written int64, err error) {
	source, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return 0, err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return 0, err
	}
	if cloneFile(target, source) == nil {
		return info.Size(), target.Close()
	}
	written, err = copySparse(target, source)
	return written, errors.Join(err, target.Close())
}

// copyBlock is how many zeros make a hole, and what is copied at once: a
// multiple of every file system's block.
const copyBlock = 64 << 10

func copySparse(target, source *os.File) (written int64, err error) {
	block, zeros := make([]byte, copyBlock), make([]byte, copyBlock)
	for at := int64(0); ; {
		n, err := io.ReadFull(source, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := target.WriteAt(block[:n], at); err != nil {
				return written, err
			}
			written += int64(n)
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return written, target.Truncate(at) // a hole at the end
		case err != nil:
			return written, err
		}
	}
}
