package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/backup"
	"github.com/slipway-k8s/slipway/steps"
)

func TestReadoptRefusesBeforeAnythingIsBegun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeBackup(t, "empty", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "k8s", UID: "uid", Taken: time.Now()})
	writeBackup(t, "other", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "other", UID: "uid", Taken: time.Now()})
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"readopt"}, "FILE"},
		{[]string{"readopt", "missing"}, "missing"},
		{[]string{"readopt", "empty"}, "it lacks"},
		{[]string{"readopt", "other"}, "not of k8s"},
		{[]string{"restore", "empty", "--accept", "server-missing/x"}, "--accept goes with the target readopt"},
	} {
		r := execute(t, t.Context(), dir, "", c.arguments...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%v: exit %d, %s", c.arguments, r.code, r.stderr)
		}
	}
	if contents := folderContents(t, dir); strings.Contains(contents, stateFolderIn) {
		t.Error("a refused readoption made a state folder")
	}
}

func TestNothingElseRunsInTheMiddleOfAReadoption(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := steps.FilesIn(filepath.Join(dir, "state"))
	record := `{"cluster": "k8s", "uid": "uid", "snapshot": "5a5a", "began": "2026-01-02T03:04:05Z"}`
	if err := steps.ReadoptFiles(state).Write("readopt.json", []byte(record)); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"bootstrap", "pivot", "all"} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1", target, "--state-dir", state.String())
		if r.code != exitUsage || !strings.Contains(r.stderr, "is being readopted") {
			t.Errorf("%s: exit %d, %s", target, r.code, r.stderr)
		}
	}
}
