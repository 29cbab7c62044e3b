package objectstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// folderLock is locked by the kernel while an object is written. File systems that are shared between machines have to
// support flock, as NFS does.
const folderLock = ".lock"

// temporarySuffix ends the name of a file that is being written.
const temporarySuffix = ".new"

type folder struct{ dir string }

// Folder is a Store in a folder, which is created when something is written: 0700, its files 0600. An object's version
// is the SHA-256 of its content.
func Folder(dir string) Store { return checked{folder{dir}, mostBytes} }

func (f folder) String() string { return "file://" + f.dir }

func (f folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f folder) Get(_ context.Context, name string) ([]byte, string, error) {
	file, err := os.Open(f.path(name))
	if err != nil {
		return nil, None, err
	}
	data, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, None, err
	}
	if len(data) > mostBytes {
		return nil, None, fmt.Errorf("read %s: it is longer than %d bytes", file.Name(), mostBytes)
	}
	return data, folderVersion(data), nil
}

func folderVersion(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (f folder) Put(_ context.Context, name string, data []byte, version string) (written string, err error) {
	path := f.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return None, fmt.Errorf("create the folder of %s: %w", path, err)
	}
	unlock, err := f.lock()
	if err != nil {
		return None, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	is := None
	if old, err := os.ReadFile(path); err == nil {
		is = folderVersion(old)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return None, err
	}
	if is != version {
		return None, fmt.Errorf("write %s: %w", path, ErrConflict)
	}
	if err := replaceFile(path, data); err != nil {
		return None, fmt.Errorf("write %s: %w", path, err)
	}
	return folderVersion(data), nil
}

// lock waits for the folder's lock: whoever has it writes one object.
func (f folder) lock() (unlock func() error, err error) {
	file, err := os.OpenFile(filepath.Join(f.dir, folderLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
	}
	return file.Close, nil
}

// replaceFile leaves the old content or the new one, whenever the process or the machine ends.
func replaceFile(path string, data []byte) error {
	file, err := os.OpenFile(path+temporarySuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+temporarySuffix, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (f folder) List(_ context.Context, prefix string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(f.path(prefix), func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || d.IsDir():
			return err
		}
		name, err := filepath.Rel(f.dir, path)
		if err != nil {
			return err
		}
		if name = filepath.ToSlash(name); !strings.HasSuffix(name, temporarySuffix) {
			names = append(names, name)
		}
		return nil
	})
	return names, err
}

func (f folder) Delete(_ context.Context, name string) error {
	if err := os.Remove(f.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
