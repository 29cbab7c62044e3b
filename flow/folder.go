package flow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Names of the files in a folder journal.
const (
	journalFile = "journal.json"
	lockFile    = "journal.lock"
)

// Folder is a journal in a folder: journal.json, and a lock that the kernel
// takes back when its holder ends. The folder is created when it is first needed,
// closed to other users, as are the files in it.
func Folder(dir string) Journal { return FolderOn(dir, LocalDisk{}) }

// FolderOn is Folder on a disk of the caller's.
func FolderOn(dir string, disk Disk) Journal { return folder{dir, disk} }

type folder struct {
	dir  string
	disk Disk
}

// CorruptError says that a journal cannot be read, and what to do about it.
type CorruptError struct {
	Path string
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("the journal %s is damaged (%v): move it away and run again; "+
		"losing it costs time and never correctness, because every step looks for what exists and adopts it", e.Path, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// Load reads journal.json. Saving renames, so it can be read at any time.
func (f folder) Load(context.Context) (Snapshot, error) {
	path := filepath.Join(f.dir, journalFile)
	data, err := f.disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, err
	}
	var s Snapshot
	if err := json.Unmarshal(data, &s); err != nil {
		var newer *FormatError
		if errors.As(err, &newer) {
			return Snapshot{}, fmt.Errorf("the journal %s cannot be read: %w", path, err)
		}
		return Snapshot{}, &CorruptError{Path: path, Err: err}
	}
	return s, nil
}

// Save writes a file beside journal.json and renames it over it, each flushed
// to the disk, so that a power failure leaves the old snapshot or the new one.
func (f folder) Save(_ context.Context, s Snapshot) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the journal: %w", err)
	}
	if err := f.replace(append(data, '\n')); err != nil {
		return fmt.Errorf("write the journal in %s: %w; what it says so far is kept: "+
			"make sure that the folder can be written and its disk is not full, and run again", f.dir, err)
	}
	return nil
}

// replace puts new content in the journal's place.
func (f folder) replace(data []byte) error {
	if err := f.make(); err != nil {
		return err
	}
	// One name, so that a crash leaves one file at most; the lock keeps others off it.
	path := filepath.Join(f.dir, journalFile)
	if err := f.write(path+".tmp", data); err != nil {
		return err
	}
	if err := f.disk.Rename(path+".tmp", path); err != nil {
		return err
	}
	return f.disk.SyncDir(f.dir) // makes the rename itself last
}

// write writes a file and flushes it.
func (f folder) write(path string, data []byte) error {
	file, err := f.disk.Create(path, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// make creates the folder. An existing one keeps its mode: it may be a user's
// working directory, and the files in it have modes of their own.
func (f folder) make() error {
	if err := f.disk.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("create the journal's folder: %w", err)
	}
	return nil
}

// Lock takes the lock beside the journal.
func (f folder) Lock(ctx context.Context) (func() error, error) {
	if err := f.make(); err != nil {
		return nil, err
	}
	unlock, err := f.disk.Lock(ctx, filepath.Join(f.dir, lockFile))
	var held *LockedError
	if err != nil && !errors.As(err, &held) {
		err = fmt.Errorf("%w; the lock prevents a second run at the same time: make sure that the folder %s can be written "+
			"and its disk is not full, and run again", err, f.dir)
	}
	return unlock, err
}
