package platform

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// notedDisk notes the calls to the local disk, by the names of files alone.
type notedDisk struct {
	flow.LocalDisk
	calls *[]string
	cut   string // the call that fails; empty: none
}

func (d notedDisk) note(call string) error {
	*d.calls = append(*d.calls, call)
	if call == d.cut {
		return errors.New("no more disk")
	}
	return nil
}

func (d notedDisk) Create(path string, mode fs.FileMode) (flow.DiskFile, error) {
	file, err := d.LocalDisk.Create(path, mode)
	return notedFile{file, d}, errors.Join(err, d.note("create "+filepath.Base(path)))
}

func (d notedDisk) Rename(from, to string) error {
	return errors.Join(d.note("rename "+filepath.Base(from)+" "+filepath.Base(to)), d.LocalDisk.Rename(from, to))
}

func (d notedDisk) SyncDir(dir string) error {
	return errors.Join(d.note("sync the folder "+filepath.Base(dir)), d.LocalDisk.SyncDir(dir))
}

func (d notedDisk) Lock(context.Context, string) (func() error, error) {
	return nil, errors.New("files take no lock")
}

type notedFile struct {
	flow.DiskFile
	disk notedDisk
}

func (f notedFile) Write(data []byte) (int, error) {
	n, err := f.DiskFile.Write(data)
	return n, errors.Join(err, f.disk.note("write"))
}
func (f notedFile) Sync() error  { return errors.Join(f.disk.note("sync"), f.DiskFile.Sync()) }
func (f notedFile) Close() error { return errors.Join(f.disk.note("close"), f.DiskFile.Close()) }

// A run resumes from what a file says, so the file must last through a power failure before the run does: its content
// first, then its name.
func TestFilesLast(t *testing.T) {
	var calls []string
	disk := notedDisk{calls: &calls}
	dir := filepath.Join(t.TempDir(), "state")
	f := FilesOn(dir, disk)
	for _, tc := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"write", func() error { return f.Write("x", []byte("one")) },
			[]string{"create .x.new", "write", "sync", "close", "rename .x.new x", "sync the folder state"}},
		{"write the same", func() error { return f.Write("x", []byte("one")) }, []string{"sync the folder state"}},
		{"write in a folder", func() error { return f.Folder("a").Write("y", []byte("one")) },
			[]string{"create .y.new", "write", "sync", "close", "rename .y.new y", "sync the folder a"}},
		{"move", func() error { return f.Move("x", "z") }, []string{"rename x z", "sync the folder state"}},
		{"move into a folder", func() error { return f.Move("z", "b/z") },
			[]string{"rename z z", "sync the folder b", "sync the folder state"}},
		{"move what is not there", func() error { return f.Move("z", "b/z") }, nil},
		{"remove", func() error { return f.Folder("a").Remove("y") }, []string{"sync the folder a"}},
		{"remove what is not there", func() error { return f.Folder("a").Remove("y") }, []string{"sync the folder a"}},
		{"remove in a folder that is not there", func() error { return f.Folder("c").Remove("y") },
			[]string{"sync the folder c"}},
		{"remove a folder", func() error { return f.Folder("a").RemoveFolder() }, []string{"sync the folder state"}},
		{"remove a folder that is not there", func() error { return f.Folder("a").RemoveFolder() },
			[]string{"sync the folder state"}},
	} {
		calls = nil
		if err := tc.do(); err != nil || !slices.Equal(calls, tc.want) {
			t.Errorf("%s: the disk saw %q, want %q; %v", tc.what, calls, tc.want, err)
		}
	}
	disk.cut = "sync the folder state"
	if err := FilesOn(dir, disk).Write("x", []byte("two")); err == nil {
		t.Error("a file that may not last counts as written")
	}
	if err := FilesOn(dir, disk).Write("x", []byte("two")); err == nil {
		t.Error("a file that is so already, and may not last, counts as written")
	}
	if err := FilesOn(dir, disk).Remove("x"); err == nil {
		t.Error("a file that may come back counts as removed")
	}
}
