package flow_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// notedDisk notes the calls to the local disk, by the names of files alone.
type notedDisk struct {
	flow.LocalDisk
	*ledger
}

func (d notedDisk) MkdirAll(dir string, mode fs.FileMode) error {
	d.add("mkdir")
	return d.LocalDisk.MkdirAll(dir, mode)
}

func (d notedDisk) ReadFile(path string) ([]byte, error) {
	d.add("read " + filepath.Base(path))
	return d.LocalDisk.ReadFile(path)
}

func (d notedDisk) Create(path string, mode fs.FileMode) (flow.DiskFile, error) {
	d.add("create " + filepath.Base(path))
	file, err := d.LocalDisk.Create(path, mode)
	return notedFile{file, d.ledger}, err
}

func (d notedDisk) Rename(from, to string) error {
	d.add("rename " + filepath.Base(from) + " " + filepath.Base(to))
	return d.LocalDisk.Rename(from, to)
}

func (d notedDisk) SyncDir(dir string) error {
	d.add("sync the folder")
	return d.LocalDisk.SyncDir(dir)
}

func (d notedDisk) Lock(ctx context.Context, path string) (func() error, error) {
	d.add("lock " + filepath.Base(path))
	return d.LocalDisk.Lock(ctx, path)
}

type notedFile struct {
	flow.DiskFile
	*ledger
}

func (f notedFile) Write(data []byte) (int, error) { f.add("write"); return f.DiskFile.Write(data) }
func (f notedFile) Sync() error                    { f.add("sync"); return f.DiskFile.Sync() }
func (f notedFile) Close() error                   { f.add("close"); return f.DiskFile.Close() }

// The order is what makes a save whole or nothing: the data is on the disk
// before it gets the name, and the name before the save returns. A later change is on the disk before the run goes on.
func TestASaveCallsTheDiskInOrder(t *testing.T) {
	var calls, work ledger
	j := flow.FolderOn(t.TempDir(), notedDisk{ledger: &calls})
	mustRun(t, oneStep(&work), flow.Options{Journal: j})
	save := []string{"read journal.json", "mkdir", "create journal.json.tmp", "write", "sync",
		"rename journal.json.tmp journal.json", "sync the folder"}
	appended := []string{"write", "sync"}
	end := []string{"close", "read journal.json", "mkdir", "create journal.json.tmp", "write", "sync", "close",
		"rename journal.json.tmp journal.json", "sync the folder"}
	wantLines(t, calls.take(), slices.Concat([]string{"mkdir", "lock journal.lock", "read journal.json"}, save, appended,
		end)...)
}
