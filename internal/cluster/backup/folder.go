package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Folder is a Store of files: the folder is closed to other users when it is made, the files are in any case.
type Folder string

// String is the folder's path.
func (f Folder) String() string { return string(f) }

// List implements Store. A folder that does not exist has no backups.
func (f Folder) List(context.Context) ([]Stored, error) {
	entries, err := os.ReadDir(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	var all []Stored
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() { // gone meanwhile, or nothing of ours
			continue
		}
		if s, ok := newStored(e.Name(), info.Size()); ok {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, byAge)
	return all, nil
}

// Open implements Store.
func (f Folder) Open(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(f), name))
}

// Remove implements Store.
func (f Folder) Remove(_ context.Context, name string) error {
	if err := os.Remove(filepath.Join(string(f), name)); err != nil {
		return fmt.Errorf("remove an old backup: %w", err)
	}
	return nil
}

// Begin implements Store. It removes drafts that killed runs left.
func (f Folder) Begin(_ context.Context, name string) (Draft, error) {
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for backups: %w", err)
	}
	entries, err := os.ReadDir(string(f))
	if err != nil {
		return nil, fmt.Errorf("look into the folder for backups: %w", err)
	}
	for _, e := range entries {
		if abandoned(e.Name(), name, time.Now()) {
			if err := os.Remove(filepath.Join(string(f), e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("remove what a dead run left: %w", err)
			}
		}
	}
	d := &fileDraft{folder: string(f), name: name, path: filepath.Join(string(f), draftName(name))}
	if d.file, err = os.OpenFile(d.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, fmt.Errorf("begin the backup: %w", err)
	}
	return d, nil
}

// fileDraft is a file under a hidden name.
type fileDraft struct {
	folder, name, path string
	file               *os.File
	published          bool
}

func (d *fileDraft) Write(p []byte) (int, error) { return d.file.Write(p) }

func (d *fileDraft) Finish() error {
	if err := errors.Join(d.file.Sync(), d.file.Close()); err != nil {
		return fmt.Errorf("keep the backup: %w", err)
	}
	return nil
}

func (d *fileDraft) Open() (io.ReadCloser, error) { return os.Open(d.path) }

func (d *fileDraft) Publish() error {
	target := filepath.Join(d.folder, d.name)
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: another run began in the same second", target)
	}
	if err := os.Rename(d.path, target); err != nil {
		return fmt.Errorf("name the backup: %w", err)
	}
	d.published = true
	folder, err := os.Open(d.folder)
	if err != nil {
		return fmt.Errorf("keep the backup's name: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("keep the backup's name: %w", err)
	}
	return nil
}

func (d *fileDraft) Discard() error {
	if d.published {
		return nil
	}
	_ = d.file.Close() // twice, where it was finished
	if err := os.Remove(d.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove what was written of the backup: %w", err)
	}
	return nil
}
