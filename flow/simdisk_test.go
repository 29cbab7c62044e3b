package flow_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/flow"
)

// simDisk is a file system in memory that knows what a power failure takes:
// what was written and not flushed, and names that were given since their
// folder was flushed last. At every moment of a save something may happen.
type simDisk struct {
	// moment is asked before, in the middle of (writes only) and after each
	// changing call. An error is what the call ends with; what was done by then
	// stays done.
	moment func(call string, when when) error

	mu      sync.Mutex        // guards what follows; not held while moment is asked
	names   map[string]*inode // as the machine sees them
	durable map[string]*inode // as they are on the disk
}

// when is a moment of a call.
type when string

const (
	before when = "before"
	half   when = "half"
	after  when = "after"
)

// inode is a file's content; the first durable bytes are on the disk.
type inode struct {
	data    []byte
	durable int
}

func newSimDisk() *simDisk {
	return &simDisk{
		moment: func(string, when) error { return nil },
		names:  map[string]*inode{}, durable: map[string]*inode{},
	}
}

// doing makes a change between its two moments.
func (d *simDisk) doing(call string, change func()) error {
	if err := d.moment(call, before); err != nil {
		return err
	}
	d.change(change)
	return d.moment(call, after)
}

func (d *simDisk) change(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *simDisk) MkdirAll(string, fs.FileMode) error { return nil }

func (d *simDisk) ReadFile(path string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	file, ok := d.names[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return slices.Clone(file.data), nil
}

func (d *simDisk) Create(path string, _ fs.FileMode) (flow.DiskFile, error) {
	var file *inode
	err := d.doing("create", func() {
		if file = d.names[path]; file == nil {
			file = &inode{}
			d.names[path] = file
		}
		file.data, file.durable = nil, 0
	})
	return &simFile{d, file}, err
}

func (d *simDisk) Rename(from, to string) error {
	var missing error
	err := d.doing("rename", func() {
		if d.names[from] == nil {
			missing = &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
			return
		}
		d.names[to] = d.names[from]
		delete(d.names, from)
	})
	return errors.Join(missing, err)
}

func (d *simDisk) SyncDir(string) error {
	return d.doing("sync the folder", func() { d.durable = maps.Clone(d.names) })
}

// Lock excludes no run: the runs on a simDisk follow each other.
func (d *simDisk) Lock(context.Context, string) (func() error, error) {
	return func() error { return nil }, nil
}

// powerFails leaves what was flushed. What was not may have reached the disk
// all the same, on its own: names reports whether the names did, and files how
// much of each file, from 0 to 1.
func (d *simDisk) powerFails(names bool, files float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if names {
		d.durable = maps.Clone(d.names)
	}
	for _, file := range d.durable {
		if kept := int(files * float64(len(file.data))); kept > file.durable {
			file.durable = kept
		}
		file.data = file.data[:file.durable]
	}
	d.names = maps.Clone(d.durable)
}

// onDisk gives the journal as it is on the disk, after the worst of power failures.
func (d *simDisk) onDisk(dir string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	file, ok := d.durable[filepath.Join(dir, "journal.json")]
	if !ok {
		return nil
	}
	return file.data[:file.durable]
}

// written gives the same file with all that was written to it: it may have reached the disk, too.
func (d *simDisk) written(dir string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file, ok := d.durable[filepath.Join(dir, "journal.json")]; ok {
		return file.data
	}
	return nil
}

type simFile struct {
	disk *simDisk
	file *inode
}

// call names what is done to the file: "append" and "sync the log" once it has the journal's name.
func (f *simFile) call(new, log string) string {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.names[filepath.Join(simDir, "journal.json")] == f.file {
		return log
	}
	return new
}

func (f *simFile) Write(data []byte) (int, error) {
	call := f.call("write", "append")
	if err := f.disk.moment(call, before); err != nil {
		return 0, err
	}
	f.add(data[:len(data)/2])
	if err := f.disk.moment(call, half); err != nil {
		return len(data) / 2, err
	}
	f.add(data[len(data)/2:])
	return len(data), f.disk.moment(call, after)
}

func (f *simFile) add(data []byte) {
	f.disk.change(func() { f.file.data = append(f.file.data, data...) })
}

func (f *simFile) Sync() error {
	return f.disk.doing(f.call("sync", "sync the log"), func() { f.file.durable = len(f.file.data) })
}

func (f *simFile) Close() error { return nil }

var _ flow.Disk = (*simDisk)(nil)

// errNoSpace is what a full disk says.
var errNoSpace = &fs.PathError{Op: "write", Path: "journal.json.tmp", Err: errors.New("no space left on device")}
