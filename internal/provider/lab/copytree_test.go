package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// A killed lab save or lab load leaves half a lab: the next one takes it away, and nothing else.
func TestBeside(t *testing.T) {
	parent := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", ended.Process.Pid))
	kept := []string{filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", os.Getppid())),
		filepath.Join(parent, fmt.Sprintf("other.unfinished-%d", ended.Process.Pid)),
		filepath.Join(parent, "lab.unfinished-business")}
	// in a container the command may have the same number each time
	earlier := filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", os.Getpid()))
	for _, dir := range append(kept, dead, earlier) {
		writeFile(t, filepath.Join(dir, "file"), "half")
	}
	made, err := beside(filepath.Join(parent, "lab"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(made); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s: %v", made, err)
	}
	if Exists(dead) || Exists(filepath.Join(earlier, "file")) {
		t.Error("what a dead process left is there")
	}
	for _, dir := range kept {
		if !Exists(dir) {
			t.Errorf("%s is gone", dir)
		}
	}
}

func TestCopyTree(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	writeFile(t, filepath.Join(from, "a", "plain"), "text")
	writeFile(t, filepath.Join(from, "a", "empty"), "")
	writeFile(t, filepath.Join(from, "a", "left"), "not this")
	writeFile(t, filepath.Join(from, "left", "out"), "nor this")
	program := filepath.Join(from, "program")
	if err := os.WriteFile(program, []byte("#!"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a/plain", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	// An etcd's log: a little, a lot of nothing, and a little at no block's begin.
	log := make([]byte, 10*copyBlock+123)
	copy(log, "begin")
	copy(log[7*copyBlock+5:], "middle")
	writeFile(t, filepath.Join(from, "log"), string(log))
	writeFile(t, filepath.Join(from, "nothing"), string(make([]byte, 3*copyBlock+1)))
	socket, err := net.Listen("unix", filepath.Join(from, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()

	sum, err := copyTree(t.Context(), to, from, func(path string) treatment {
		switch path {
		case "left", filepath.Join("a", "left"):
			return leaveIt
		case "program":
			return linkIt
		}
		return copyIt
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"a/plain": "text", "a/empty": "", "link": "text", "log": string(log),
		"nothing": string(make([]byte, 3*copyBlock+1))} {
		if got, err := os.ReadFile(filepath.Join(to, path)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes for %d, %v", path, len(got), len(want), err)
		}
	}
	for _, path := range []string{"a/left", "left", "s"} {
		if _, err := os.Lstat(filepath.Join(to, path)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is copied: %v", path, err)
		}
	}
	if target, err := os.Readlink(filepath.Join(to, "link")); err != nil || target != "a/plain" {
		t.Errorf("the link: %s, %v", target, err)
	}
	for path, mode := range map[string]fs.FileMode{"program": 0o700, "a/plain": 0o600, "a": 0o700 | fs.ModeDir} {
		if info, err := os.Stat(filepath.Join(to, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
	was, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(filepath.Join(to, "program")); err != nil || !os.SameFile(was, is) {
		t.Errorf("the program is another file: %v", err)
	}
	if sum.Files != 5 {
		t.Errorf("%d files", sum.Files)
	}
	info, err := os.Stat(filepath.Join(to, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks * 512; blocks > 5*copyBlock {
		t.Errorf("the copy of a log of %d bytes, mostly zeros, takes %d", len(log), blocks)
	}
	if _, err := copyTree(t.Context(), to, from, func(string) treatment { return copyIt }); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a copy over another one: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(flow.ErrInterrupted)
	if _, err := copyTree(ctx, filepath.Join(t.TempDir(), "x"), from,
		func(string) treatment { return copyIt }); !errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
}
