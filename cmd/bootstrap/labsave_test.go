package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A killed lab save or lab load leaves half a lab: the next one takes it away, and nothing else.
func TestBeside(t *testing.T) {
	parent := t.TempDir()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", ended.Process.Pid))
	kept := []string{filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", os.Getppid())),
		filepath.Join(parent, fmt.Sprintf("other.unfinished-%d", ended.Process.Pid)), filepath.Join(parent, "lab.unfinished-business")}
	earlier := filepath.Join(parent, fmt.Sprintf("lab.unfinished-%d", os.Getpid())) // in a container the command may have the same number each time
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
	if exists(dead) || exists(filepath.Join(earlier, "file")) {
		t.Error("what a dead process left is there")
	}
	for _, dir := range kept {
		if !exists(dir) {
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
	for path, want := range map[string]string{"a/plain": "text", "a/empty": "", "link": "text", "log": string(log), "nothing": string(make([]byte, 3*copyBlock+1))} {
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
	if sum.files != 5 {
		t.Errorf("%d files", sum.files)
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
	if _, err := copyTree(ctx, filepath.Join(t.TempDir(), "x"), from, func(string) treatment { return copyIt }); !errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("interrupted: %v", err)
	}
}

// A lab that is saved stands still until the copy is whole.
func TestLabSave(t *testing.T) {
	f := newFakeLab(t)
	state := filepath.Dir(f.dir)
	writeFile(t, filepath.Join(state, journalFile), "{}")
	writeFile(t, filepath.Join(state, worldFile), "lab\n")
	writeFile(t, filepath.Join(f.dir, "state.json"), "slot")
	writeFile(t, filepath.Join(f.dir, "lab.lock"), "1\n")
	to := filepath.Join(t.TempDir(), "deep", "saved")
	r := f.command(t, "lab", "save", to)
	if r.code != exitDone || !strings.Contains(r.stdout, "saved in "+to) {
		t.Fatalf("%+v", r)
	}
	if f.stood == 0 || f.standing {
		t.Errorf("it stood still %d times, and does so: %v", f.stood, f.standing)
	}
	for path, there := range map[string]bool{
		journalFile: true, worldFile: true, "lab/state.json": true, savedFile: true,
		"lab/lab.sock": false, "lab/lab.lock": false, journalLock: false,
	} {
		if exists(filepath.Join(to, path)) != there {
			t.Errorf("%s is there: %v", path, !there)
		}
	}
	about, err := readSaved(to)
	if err != nil || about.Cluster != "k8s" || about.Endpoint != f.info.HetznerEndpoint {
		t.Errorf("%+v, %v", about, err)
	}
	for args, says := range map[string]string{
		to:                             "is not empty",
		state:                          "lies in the state folder",
		filepath.Join(state, "saved"):  "lies in the state folder",
		filepath.Join(to, journalFile): "save the lab",
		"":                             "lab save needs FOLDER",
	} {
		if r := f.command(t, append([]string{"lab", "save"}, strings.Fields(args)...)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("lab save %s: %+v, want %s", args, r, says)
		}
	}
	unlock, err := stateFolder(state).journal().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if r := f.command(t, "lab", "save", other); r.code != exitFailed || f.stood != 1 || exists(other) {
		t.Errorf("during a run: %+v", r)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	f.impatient = true
	if r := f.command(t, "lab", "save", other); r.code != exitFailed || !strings.Contains(r.stdout+r.stderr, "did not stand still") {
		t.Errorf("a lab that went on meanwhile: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Dir(other)); err != nil || len(left) != 0 {
		t.Errorf("of a copy that failed is left %v, %v", left, err)
	}
	f.server.Close()
	if r := f.command(t, "lab", "save", other); r.code != exitFailed || !strings.Contains(r.stderr, "no lab is up") {
		t.Errorf("of a lab that is down: %+v", r)
	}
}

func TestLabLoadRefuses(t *testing.T) {
	address := httptest.NewServer(http.NotFoundHandler()) // what has the saved lab's address
	defer address.Close()
	save := func(about saved) string {
		dir := t.TempDir()
		data, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, savedFile), string(data))
		return dir
	}
	good := save(saved{Version: savedVersion, Cluster: "k8s", Endpoint: address.URL + "/v1"})
	none := t.TempDir()
	rehearsed, real, foreign := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(rehearsed, worldFile), "lab\n")
	writeFile(t, filepath.Join(real, worldFile), "hetzner\n")
	writeFile(t, filepath.Join(foreign, "thesis.txt"), "years of work")
	up := newFakeLab(t)
	writeFile(t, filepath.Join(filepath.Dir(up.dir), worldFile), "lab\n")
	for _, tt := range []struct {
		from, into, flags, says string
		code                    int
	}{
		{none, t.TempDir(), "", "holds no lab that lab save has saved", exitUsage},
		{save(saved{Version: savedVersion + 1, Cluster: "k8s"}), t.TempDir(), "", "another version of this command", exitUsage},
		{save(saved{Version: savedVersion, Cluster: "other"}), t.TempDir(), "", " CLUSTER_NAME=other", exitUsage},
		{good, rehearsed, "", "--yes has the loaded lab take the place", exitUsage},
		{good, real, "--yes", "holds the state of a real cluster", exitUsage},
		{good, foreign, "--yes", "no rehearsal's state folder", exitUsage},
		{good, filepath.Dir(up.dir), "--yes", "a lab is up in", exitUsage},
		{good, rehearsed, "--yes", "where another program listens", exitFailed},
		{good, t.TempDir(), "", "where another program listens", exitFailed},
	} {
		before := folderContents(t, tt.into)
		r := execute(t, t.Context(), t.TempDir(), "", append(strings.Fields("lab load "+tt.from+" --state-dir "+tt.into), strings.Fields(tt.flags)...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.says) {
			t.Errorf("%s into %s: %+v, want %s", tt.from, tt.into, r, tt.says)
		}
		if after := folderContents(t, tt.into); after != before {
			t.Errorf("%s into %s changed %s to %s", tt.from, tt.into, before, after)
		}
	}
}

func TestLabLoadNamesWhoHasTheAddress(t *testing.T) {
	address := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/lab" {
			_, _ = w.Write([]byte(`{"dir":"/elsewhere/lab","pid":42}`))
		}
	}))
	err := checkAddress(t.Context(), address.URL+"/v1")
	if err == nil || !strings.Contains(err.Error(), "the lab in /elsewhere/lab has (process 42)") || !strings.Contains(err.Error(), "--state-dir /elsewhere") {
		t.Errorf("%v", err)
	}
	address.Close()
	if err := checkAddress(t.Context(), address.URL+"/v1"); err != nil {
		t.Errorf("nobody has it: %v", err)
	}
}

// What was there goes, and only when what takes its place is whole.
func TestLoadState(t *testing.T) {
	from, parent := t.TempDir(), t.TempDir()
	state := stateFolder(filepath.Join(parent, "state"))
	writeFile(t, filepath.Join(from, savedFile), "{}")
	writeFile(t, filepath.Join(from, "lab", "state.json"), "new")
	writeFile(t, state.path("lab/state.json"), "old")
	writeFile(t, state.path("lab/more"), "old")
	if _, err := loadState(t.Context(), state, filepath.Join(from, "nothing")); err == nil {
		t.Error("nothing is loaded")
	}
	if got, err := os.ReadFile(state.path("lab/state.json")); err != nil || string(got) != "old" {
		t.Errorf("after a failure there is %s, %v", got, err)
	}
	if _, err := loadState(t.Context(), state, from); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(state.path("lab/state.json"))
	if err != nil || !bytes.Equal(got, []byte("new")) || exists(state.path("lab/more")) || exists(state.path(savedFile)) {
		t.Errorf("loaded: %s, %v", got, err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}
