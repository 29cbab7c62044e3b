package inotify

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestInstancesAreCounted(t *testing.T) {
	proc := t.TempDir()
	if _, known := Of(proc, os.Getuid()); known {
		t.Error("counted where the kernel has no inotify")
	}
	limit := filepath.Join(proc, "sys/fs/inotify")
	if err := os.MkdirAll(limit, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(limit, "max_user_instances"), []byte("128\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for process, files := range map[string][]string{
		"17":   {"anon_inode:inotify", "anon_inode:[eventpoll]", "anon_inode:inotify"},
		"204":  {"anon_inode:inotify"},
		"self": {"anon_inode:inotify"},
	} {
		dir := filepath.Join(proc, process, "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, file := range files {
			if err := os.Symlink(file, filepath.Join(dir, strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if use, known := Of(proc, os.Getuid()); !known || use != (Use{Used: 3, Limit: 128}) {
		t.Errorf("%+v, %v", use, known)
	}
	if use, _ := Of(proc, os.Getuid()+1); use.Used != 0 {
		t.Errorf("another user's are counted: %+v", use)
	}
}
