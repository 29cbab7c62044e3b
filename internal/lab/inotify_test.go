package lab

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestInotifyIsCounted(t *testing.T) {
	proc := t.TempDir()
	if _, known := inotifyOf(proc, os.Getuid()); known {
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
	if use, known := inotifyOf(proc, os.Getuid()); !known || use != (inotifyUse{used: 3, limit: 128}) {
		t.Errorf("%+v, %v", use, known)
	}
	if use, _ := inotifyOf(proc, os.Getuid()+1); use.used != 0 {
		t.Errorf("another user's are counted: %+v", use)
	}
}

func TestTooFewInotifyInstances(t *testing.T) {
	for _, c := range []struct {
		use           inotifyUse
		refused, note bool
	}{
		{use: inotifyUse{used: 109, limit: 128}, refused: true},
		{use: inotifyUse{used: 69, limit: 128}, note: true},
		{use: inotifyUse{used: 68, limit: 128}},
	} {
		var said []string
		err := c.use.check(func(format string, _ ...any) { said = append(said, format) })
		if (err != nil) != c.refused || (len(said) > 0) != c.note {
			t.Errorf("%+v: error %v, said %q", c.use, err, said)
		}
		if err != nil && !strings.Contains(err.Error(), "sysctl fs.inotify.max_user_instances=") {
			t.Errorf("no way out is named: %v", err)
		}
	}
}
