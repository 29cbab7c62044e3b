package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/steps"
)

// Before the question is answered nothing is kept, also where Ctrl-C is the answer: the snapshot holds every secret of the cluster.
func TestAnInterruptedLookAtEtcdKeepsNothing(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var kept []string // in the middle of it
	folder := filepath.Join(dir, stateFolderIn, "k8s", "recover-quorum")
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		if !strings.Contains(asked.URL.Path, "/placement_groups") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		kept, _ = filepath.Glob(filepath.Join(folder, "*"))
		interrupt()
		<-asked.Context().Done()
	}))
	r := execute(t, ctx, dir, "HCLOUD_TOKEN=a-real-looking-token HCLOUD_ENDPOINT="+api.URL, "recover-quorum", "--yes")
	api.Close()
	if r.code != exitInterrupted || len(kept) == 0 {
		t.Fatalf("nothing was interrupted: %+v; it had %v", r, kept)
	}
	if _, err := os.Lstat(folder); !os.IsNotExist(err) {
		t.Errorf("it leaves %s: %v", folderContents(t, folder), err)
	}
}

// What could not be compared is named before it is wiped.
func TestTheQuestionNamesWhoCouldNotBeCompared(t *testing.T) {
	s := steps.QuorumSurvey{Servers: []string{"a", "b", "c"}, Survivor: "a", Wipe: []string{"b"}, Target: "b"}
	const said = "b holds data of etcd too"
	if lines := strings.Join(recoveryLines(s, steps.QuorumSnapshot{}), "\n"); strings.Contains(lines, said) {
		t.Errorf("of a server that was compared: %s", lines)
	}
	s.Silent = []string{"b"}
	if lines := strings.Join(recoveryLines(s, steps.QuorumSnapshot{}), "\n"); !strings.Contains(lines, said) {
		t.Errorf("it does not say %q: %s", said, lines)
	}
}
