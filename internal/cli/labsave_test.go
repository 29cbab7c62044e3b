package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/lab/labtest"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
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

// A lab that is saved is stopped until the copy is complete.
func TestLabSave(t *testing.T) {
	f := labtest.NewFakeLab(t)
	state := filepath.Dir(f.Dir)
	writeFile(t, filepath.Join(state, statedir.JournalFile), "{}")
	writeFile(t, filepath.Join(state, statedir.EnvironmentFile), "lab\n")
	writeFile(t, filepath.Join(f.Dir, "state.json"), "slot")
	writeFile(t, filepath.Join(f.Dir, "lab.lock"), "1\n")
	to := filepath.Join(t.TempDir(), "deep", "saved")
	r := inLab(t, f, "lab", "save", to)
	if r.code != ExitDone || !strings.Contains(r.stdout, "saved in "+to) {
		t.Fatalf("%+v", r)
	}
	if f.Stood == 0 || f.Standing {
		t.Errorf("it stood still %d times, and does so: %v", f.Stood, f.Standing)
	}
	for path, there := range map[string]bool{
		statedir.JournalFile: true, statedir.EnvironmentFile: true, "lab/state.json": true, lab.SavedFile: true,
		"lab/lab.sock": false, "lab/lab.lock": false, statedir.JournalLock: false,
	} {
		if lab.Exists(filepath.Join(to, path)) != there {
			t.Errorf("%s is there: %v", path, !there)
		}
	}
	about, err := lab.ReadSaved(to)
	if err != nil || about.Cluster != "k8s" || about.Endpoint != f.Info.HetznerEndpoint {
		t.Errorf("%+v, %v", about, err)
	}
	for args, says := range map[string]string{
		to:                                      "is not empty",
		state:                                   "lies in the state folder",
		filepath.Join(state, "saved"):           "lies in the state folder",
		filepath.Join(to, statedir.JournalFile): "save the lab",
		"":                                      "lab save needs FOLDER",
	} {
		if r := inLab(t, f, append([]string{"lab", "save"}, strings.Fields(args)...)...); r.code != ExitUsage ||
			!strings.Contains(r.stderr, says) {
			t.Errorf("lab save %s: %+v, want %s", args, r, says)
		}
	}
	unlock, err := statedir.Dir(state).Journal().Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	if r := inLab(t, f, "lab", "save", other); r.code != ExitFailed || f.Stood != 1 || lab.Exists(other) {
		t.Errorf("during a run: %+v", r)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	f.Impatient = true
	if r := inLab(t, f, "lab", "save", other); r.code != ExitFailed ||
		!strings.Contains(r.stdout+r.stderr, "was not stopped") {
		t.Errorf("a lab that went on meanwhile: %+v", r)
	}
	if left, err := os.ReadDir(filepath.Dir(other)); err != nil || len(left) != 0 {
		t.Errorf("of a copy that failed is left %v, %v", left, err)
	}
	f.Server.Close()
	if r := inLab(t, f, "lab", "save", other); r.code != ExitFailed || !strings.Contains(r.stderr, "no lab is up") {
		t.Errorf("of a lab that is down: %+v", r)
	}
}

func TestLabLoadRefuses(t *testing.T) {
	address := httptest.NewServer(http.NotFoundHandler()) // what has the saved lab's address
	defer address.Close()
	save := func(about lab.Saved) string {
		dir := t.TempDir()
		data, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, lab.SavedFile), string(data))
		return dir
	}
	good := save(lab.Saved{Version: lab.SavedVersion, Cluster: "k8s", Endpoint: address.URL + "/v1"})
	none := t.TempDir()
	rehearsed, real, foreign := t.TempDir(), t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(rehearsed, statedir.EnvironmentFile), "lab\n")
	writeFile(t, filepath.Join(real, statedir.EnvironmentFile), "hetzner\n")
	writeFile(t, filepath.Join(foreign, "thesis.txt"), "years of work")
	up := labtest.NewFakeLab(t)
	writeFile(t, filepath.Join(filepath.Dir(up.Dir), statedir.EnvironmentFile), "lab\n")
	for _, tt := range []struct {
		from, into, flags, says string
		code                    int
	}{
		{none, t.TempDir(), "", "holds no lab that lab save has saved", ExitUsage},
		{save(lab.Saved{Version: lab.SavedVersion + 1, Cluster: "k8s"}), t.TempDir(), "", "another version of this command",
			ExitUsage},
		{save(lab.Saved{Version: lab.SavedVersion, Cluster: "other"}), t.TempDir(), "", " CLUSTER_NAME=other", ExitUsage},
		{good, rehearsed, "", "--yes has the loaded lab take the place", ExitUsage},
		{good, real, "--yes", "holds the state of a real cluster", ExitUsage},
		{good, foreign, "--yes", "no rehearsal's state folder", ExitUsage},
		{good, filepath.Dir(up.Dir), "--yes", "a lab is up in", ExitUsage},
		{good, rehearsed, "--yes", "where another program listens", ExitFailed},
		{good, t.TempDir(), "", "where another program listens", ExitFailed},
	} {
		before := folderContents(t, tt.into)
		r := execute(t, t.Context(), t.TempDir(), "", append(strings.Fields("lab load "+tt.from+" --state-dir "+tt.into),
			strings.Fields(tt.flags)...)...)
		if r.code != tt.code || !strings.Contains(r.stderr, tt.says) {
			t.Errorf("%s into %s: %+v, want %s", tt.from, tt.into, r, tt.says)
		}
		if after := folderContents(t, tt.into); after != before {
			t.Errorf("%s into %s changed %s to %s", tt.from, tt.into, before, after)
		}
	}
}
