package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// A lab that is saved stands still until the copy is whole.
func TestLabSave(t *testing.T) {
	f := newFakeLab(t)
	state := filepath.Dir(f.dir)
	writeFile(t, filepath.Join(state, journalFile), "{}")
	writeFile(t, filepath.Join(state, worldFile), "lab\n")
	writeFile(t, filepath.Join(f.dir, "state.json"), "slot")
	writeFile(t, filepath.Join(f.dir, "lab.lock"), "1\n")
	to := filepath.Join(t.TempDir(), "deep", "saved")
	r := inLab(t, f, "lab", "save", to)
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
		if r := inLab(t, f, append([]string{"lab", "save"}, strings.Fields(args)...)...); r.code != exitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("lab save %s: %+v, want %s", args, r, says)
		}
	}
	unlock, err := stateFolder(state).journal().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if r := inLab(t, f, "lab", "save", other); r.code != exitFailed || f.stood != 1 || exists(other) {
		t.Errorf("during a run: %+v", r)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	f.impatient = true
	if r := inLab(t, f, "lab", "save", other); r.code != exitFailed || !strings.Contains(r.stdout+r.stderr, "did not stand still") {
		t.Errorf("a lab that went on meanwhile: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Dir(other)); err != nil || len(left) != 0 {
		t.Errorf("of a copy that failed is left %v, %v", left, err)
	}
	f.server.Close()
	if r := inLab(t, f, "lab", "save", other); r.code != exitFailed || !strings.Contains(r.stderr, "no lab is up") {
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
