package platform

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// Files is a folder for what only its owner may read: 0700, its files 0600.
type Files struct {
	dir     string
	within  string // of Tools.Files; "" is that itself
	disk    flow.Disk
	effects *effect.Recorder
}

// FilesIn is the folder of a path. It is made when something is written.
func FilesIn(dir string) Files { return FilesOn(dir, flow.LocalDisk{}) }

// FilesOn is FilesIn on a disk of the caller's choice.
func FilesOn(dir string, disk flow.Disk) Files { return Files{dir: dir, disk: disk} }

// Folder is a folder in the folder.
func (f Files) Folder(name string) Files {
	return Files{dir: f.Path(name), within: path.Join(f.within, name), disk: f.disk, effects: f.effects}
}

// String is the folder's path.
func (f Files) String() string { return f.dir }

// Path is the path of a file.
func (f Files) Path(name string) string { return filepath.Join(f.dir, name) }

// Read reads a file. errors.Is(err, fs.ErrNotExist) holds when it is missing.
func (f Files) Read(name string) ([]byte, error) { return os.ReadFile(f.Path(name)) }

// Write replaces a file in one piece: a crash leaves the old one or the new one, and once it has returned a power
// failure leaves the new one. A file that is so already is left as it is, and made to last: the process that wrote it
// may have ended before it had done that.
func (f Files) Write(name string, data []byte) error {
	if old, err := f.Read(name); err == nil && string(old) == string(data) {
		return f.keep(name)
	}
	return f.change("write", name, func() error { return f.replace(name, data) })
}

// keep makes a file that is there last through a power failure.
func (f Files) keep(name string) error {
	file, err := os.Open(f.Path(name))
	if err != nil {
		return fmt.Errorf("keep %s: %w", f.Path(name), err)
	}
	if err := errors.Join(file.Chmod(0o600), file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("keep %s: %w", f.Path(name), err)
	}
	return f.disk.SyncDir(filepath.Dir(f.Path(name)))
}

// Remove removes a file; once it has returned it stays removed through a power failure. One that is not there is no
// error.
func (f Files) Remove(name string) error {
	if _, err := os.Lstat(f.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return f.syncRemoval(f.Path(name))
	}
	return f.change("remove", name, func() error {
		if err := os.Remove(f.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return f.syncRemoval(f.Path(name))
	})
}

// RemoveFolder removes the folder with everything in it, for good as Remove does.
func (f Files) RemoveFolder() error {
	if _, err := os.Lstat(f.dir); errors.Is(err, fs.ErrNotExist) {
		return f.syncRemoval(f.dir)
	}
	return f.change("remove", "", func() error {
		if err := os.RemoveAll(f.dir); err != nil {
			return err
		}
		return f.syncRemoval(f.dir)
	})
}

// syncRemoval makes the removal of a path last. That may be an earlier process's, which ended before it had done so.
func (f Files) syncRemoval(path string) error {
	if err := f.disk.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Move gives a file, or a folder, in the folder another place in it, in one piece, which lasts through a power failure.
// One that is not there is no error.
func (f Files) Move(name, to string) error {
	if _, err := os.Lstat(f.Path(name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.change("move", name, func() error {
		left, entered := filepath.Dir(f.Path(name)), filepath.Dir(f.Path(to))
		if err := f.disk.MkdirAll(entered, 0o700); err != nil {
			return err
		}
		if err := f.disk.Rename(f.Path(name), f.Path(to)); err != nil {
			return err
		}
		if err := f.disk.SyncDir(entered); err != nil || left == entered {
			return err
		}
		return f.disk.SyncDir(left)
	})
}

// change makes a change that a recorder may want to know of. It is no work of a context: it is done in a moment, and
// never cancelled.
func (f Files) change(verb, name string, do func() error) error {
	return f.effects.Do(context.Background(), effect.File, verb, path.Join(f.within, name), do)
}

func (f Files) replace(name string, data []byte) error {
	if err := f.disk.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("create the state folder: %w", err)
	}
	temporary := f.Path("." + name + ".new")
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", f.Path(name), err)
	}
	if err := f.writeSynced(temporary, data); err != nil {
		return fmt.Errorf("write %s: %w", f.Path(name), err)
	}
	if err := f.disk.Rename(temporary, f.Path(name)); err != nil {
		return fmt.Errorf("write %s: %w", f.Path(name), err)
	}
	return f.disk.SyncDir(f.dir) // the name lasts, too: what comes next relies on what the file says
}

func (f Files) writeSynced(path string, data []byte) error {
	file, err := f.disk.Create(path, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}
