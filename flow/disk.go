package flow

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Disk is all that a folder journal does to a file system, call by call, so
// that a test, or a deliberate crash, can intervene between any two of them. A save
// is, in this order: MkdirAll, Create, Write (once), Sync, Close, Rename,
// SyncDir.
type Disk interface {
	// MkdirAll makes a folder and those above it; one that is there is left as it is.
	MkdirAll(dir string, mode fs.FileMode) error
	// ReadFile reads a whole file; its error is an fs.ErrNotExist where there is none.
	ReadFile(path string) ([]byte, error)
	// Create opens a file to be written from its beginning, whatever was in it.
	Create(path string, mode fs.FileMode) (DiskFile, error)
	// Rename puts a file in the place of another, as a whole.
	Rename(from, to string) error
	// SyncDir makes the names in a folder last through a power failure.
	SyncDir(dir string) error
	// Lock takes the lock on a file as LockFile does.
	Lock(ctx context.Context, path string) (unlock func() error, err error)
}

// DiskFile is a file that is being written.
type DiskFile interface {
	io.WriteCloser
	// Sync makes what was written last through a power failure.
	Sync() error
}

// LocalDisk is the machine's own file system.
type LocalDisk struct{}

// MkdirAll is os.MkdirAll.
func (LocalDisk) MkdirAll(dir string, mode fs.FileMode) error { return os.MkdirAll(dir, mode) }

// ReadFile is os.ReadFile.
func (LocalDisk) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Create truncates the file that is there.
func (LocalDisk) Create(path string, mode fs.FileMode) (DiskFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
}

// Rename is os.Rename.
func (LocalDisk) Rename(from, to string) error { return os.Rename(from, to) }

// SyncDir flushes the folder.
func (LocalDisk) SyncDir(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil {
		return fmt.Errorf("flush the folder %s: %w", dir, err)
	}
	return nil
}

// Lock is LockFile.
func (LocalDisk) Lock(ctx context.Context, path string) (func() error, error) {
	return LockFile(ctx, path)
}
