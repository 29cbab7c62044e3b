package cli

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// writeBackup writes a backup that holds nothing but its header and an empty snapshot.
func writeBackup(t *testing.T, path string, seal backup.Seal, h backup.Header) {
	t.Helper()
	database := make([]byte, 512)
	sum := sha256.Sum256(database)
	var b bytes.Buffer
	if _, err := backup.Write(&b, seal, backup.Contents{Header: h},
		bytes.NewReader(append(database, sum[:]...))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRestoreRefusesBeforeAnythingIsBegun(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("key", []byte(key.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := backup.Header{Cluster: "k8s", UID: "uid", Taken: time.Now()}
	writeBackup(t, "no-etcd", backup.Seal{Unencrypted: true}, h)
	writeBackup(t, "locked", backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, h)
	whole, err := os.ReadFile("no-etcd")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("cut", whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, flag, environment, want string }{
		{"missing", "--unencrypted", "", "missing"},
		{"cut", "--unencrypted", "", "damaged"},
		{"no-etcd", "--unencrypted", "", "etcd"},
		{"locked", "--unencrypted", "", "cannot be opened"},
		{"locked", "--unencrypted", "BACKUP_IDENTITY_FILE=nowhere", "nowhere"},
		{"locked", "--unauthenticated", "BACKUP_IDENTITY_FILE=key", "etcd"}, // it was opened
	} {
		r := execute(t, t.Context(), dir, c.environment, "restore", c.flag, c.file)
		if r.code != ExitUsage || !strings.Contains(r.stderr, c.want) {
			t.Errorf("%s with %q: exit %d, %s", c.file, c.environment, r.code, r.stderr)
		}
	}
	if _, err := os.Lstat(statedir.StateFolderIn); err == nil {
		t.Error("a refused restore made a state folder")
	}
}

// A store that fails is no mistake of who names a file in it; a name that it does not have is.
func TestRestoreFromAStoreThatFails(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeBackup(t, "whole", backup.Seal{Unencrypted: true}, backup.Header{Cluster: "k8s", UID: "uid", Taken: time.Now()})
	whole, err := os.ReadFile("whole")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		serve func(http.ResponseWriter)
		code  int
		want  string
	}{
		"it breaks off in the middle": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", strconv.Itoa(len(whole)))
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = w.Write(whole[:len(whole)/2])
		}, ExitFailed, "run the same command again"},
		"it is out of order": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, ExitFailed,
			"run the same command again"},
		"it has no such file": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, ExitUsage,
			"s3://bucket/k8s.slipway"},
		"it does not let one": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, ExitUsage,
			settings.AccessKeyVariable},
	} {
		store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.serve(w) }))
		environment := "BACKUP_S3_REGION=nbg1 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=secret BACKUP_S3_ENDPOINT=" +
			store.URL
		for _, target := range [][]string{{"restore"}, {"readopt"}, {"restore", "--diagnose"}} {
			r := execute(t, t.Context(), dir, environment, append(target, "--unencrypted", "s3://bucket/k8s.slipway")...)
			if r.code != c.code || !strings.Contains(r.stderr, c.want) {
				t.Errorf("%v, %s: exit %d, %s", target, name, r.code, r.stderr)
			}
		}
		store.Close()
	}
	if _, err := os.Lstat(statedir.StateFolderIn); err == nil {
		t.Error("a refused restore made a state folder")
	}
}

func TestNothingElseRunsInTheMiddleOfARestore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	state := platform.FilesIn(filepath.Join(dir, "state"))
	write := func(ended string) {
		t.Helper()
		record := `{"cluster": "k8s", "uid": "uid", "snapshot": "5a5a", "began": "2026-01-02T03:04:05Z"` + ended + `}`
		if err := records.RestoreFiles(state).Write("restore.json", []byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	before := folderContents(t, state.String())
	for _, target := range []string{"bootstrap", "pivot", "all"} {
		r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1",
			target, "--state-dir", state.String())
		if r.code != ExitUsage || !strings.Contains(r.stderr, "is being restored") {
			t.Errorf("%s: exit %d, %s", target, r.code, r.stderr)
		}
	}
	if after := folderContents(t, state.String()); after != before {
		t.Errorf("the folder was changed:\n%s\n%s", before, after)
	}
	write(`, "ended": "2026-01-02T04:04:05Z"`)
	if r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x HCLOUD_ENDPOINT=http://127.0.0.1:1", "preflight", "--state-dir",
		state.String()); strings.Contains(r.stderr, "is being restored") {
		t.Errorf("after the restore: %s", r.stderr)
	}
}
