package flow

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
)

// Names of the files in a folder journal.
const (
	journalFile = "journal.json"
	lockFile    = "journal.lock"
)

// Folder is a journal in a folder: journal.json, and a lock that the kernel
// takes back when its holder ends. Changes are appended to the file; unlocking, and a run's first change, make one
// snapshot of it again. The folder is created when it is first needed,
// closed to other users, as are the files in it.
func Folder(dir string) Journal { return FolderOn(dir, LocalDisk{}) }

// FolderOn is Folder on a disk of the caller's.
func FolderOn(dir string, disk Disk) Journal { return &folder{dir: dir, disk: disk} }

type folder struct {
	dir  string
	disk Disk

	mu    sync.Mutex // guards what follows
	log   DiskFile   // journal.json, at its end; nil: the next change is written with a new snapshot
	lines int        // the changes after the snapshot
	grown int        // their bytes
	whole int        // the snapshot's bytes
}

// mostLog is the size to which the log of a snapshot may grow: to encode a snapshot, with its sum, takes longer than as
// many bytes of lines.
func mostLog(snapshot int) int { return max(4*snapshot, 64<<10) }

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

// Load reads journal.json. A snapshot takes its place by a rename and changes are only appended, so it can be read at
// any time: a change that is just being written is not in it.
func (f *folder) Load(context.Context) (Snapshot, error) {
	path := filepath.Join(f.dir, journalFile)
	data, err := f.disk.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Snapshot{}, nil
	}
	if err != nil {
		return Snapshot{}, err
	}
	s, err := decodeText(data)
	if err != nil {
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
func (f *folder) Save(_ context.Context, s Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.replace(s, false); err != nil {
		return f.failed(err)
	}
	return nil
}

func (f *folder) failed(err error) error {
	return fmt.Errorf("write the journal in %s: %w; what it says so far is kept: "+
		"make sure that the folder can be written and its disk is not full, and run again", f.dir, err)
}

// Append writes the change behind the snapshot and flushes it. The first change, one after a write that failed, and one
// for which the log has become too long, is written with the snapshot, as Save does it: so the log never
// has an incomplete line in its middle, and what is written in all grows with the number of changes.
func (f *folder) Append(ctx context.Context, change Snapshot) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if f.log == nil || f.grown > mostLog(f.whole) {
		err = f.compact(ctx, change)
	} else {
		err = f.add(change)
	}
	if err != nil {
		f.close() // how much of it is in the file is not known
		return f.failed(err)
	}
	return nil
}

// add writes one change to the log.
func (f *folder) add(change Snapshot) error {
	line, err := encodeLine(f.lines+1, change)
	if err != nil {
		return err
	}
	if _, err := f.log.Write(line); err != nil {
		return err
	}
	f.lines++
	f.grown += len(line)
	return f.log.Sync()
}

// compact makes one snapshot of what the file says and a change, to which the next ones are appended.
func (f *folder) compact(ctx context.Context, change Snapshot) error {
	s, err := f.Load(ctx)
	if err != nil {
		return err
	}
	s.apply(change)
	return f.replace(s, true)
}

// close ends the log.
func (f *folder) close() {
	if f.log != nil {
		_ = f.log.Close() // each change in it is flushed
		f.log = nil
	}
}

// replace puts a snapshot in the journal's place, and keeps it open to append to it.
func (f *folder) replace(s Snapshot, keep bool) error {
	f.close()
	data, err := encodeWhole(s)
	if err != nil {
		return err
	}
	if err := f.make(); err != nil {
		return err
	}
	// One name, so that a crash leaves one file at most; the lock keeps others off it.
	path := filepath.Join(f.dir, journalFile)
	file, err := f.write(path+".tmp", data)
	if err != nil {
		return err
	}
	if keep {
		f.log, f.lines, f.grown, f.whole = file, 0, 0, len(data)
	} else if err := file.Close(); err != nil {
		return err
	}
	if err := f.disk.Rename(path+".tmp", path); err != nil {
		return err
	}
	return f.disk.SyncDir(f.dir) // makes the rename itself last
}

// write writes a file and flushes it. The file is open for more.
func (f *folder) write(path string, data []byte) (DiskFile, error) {
	file, err := f.disk.Create(path, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err = file.Write(data); err == nil {
		err = file.Sync()
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// make creates the folder. An existing one keeps its mode: it may be a user's
// working directory, and the files in it have modes of their own.
func (f *folder) make() error {
	if err := f.disk.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("create the journal's folder: %w", err)
	}
	return nil
}

// Lock takes the lock beside the journal. To unlock makes the log a part of the snapshot.
func (f *folder) Lock(ctx context.Context) (func() error, error) {
	if err := f.make(); err != nil {
		return nil, err
	}
	unlock, err := f.disk.Lock(ctx, filepath.Join(f.dir, lockFile))
	var held *LockedError
	if err != nil && !errors.As(err, &held) {
		err = fmt.Errorf("%w; the lock prevents a second run at the same time: make sure that the folder %s can be written "+
			"and its disk is not full, and run again", err, f.dir)
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		f.finish(context.WithoutCancel(ctx))
		return unlock()
	}, nil
}

// finish leaves one snapshot, as a release reads it that knows no log. Where that fails nothing is lost: the log says
// the same, and the next run's first change tries it again.
func (f *folder) finish(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log == nil || f.lines == 0 {
		f.close()
		return
	}
	f.close()
	if s, err := f.Load(ctx); err == nil && len(s.Steps) > 0 {
		_ = f.replace(s, false)
	}
}
