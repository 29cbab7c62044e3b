package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/operation/status"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// What is lost, or was interrupted, is said first, with a command in one line, and not that nothing is waited for.
func TestStatusBeginsWithWhatIsLost(t *testing.T) {
	command := "bootstrap restore --diagnose --lab --state-dir /a/folder CLUSTER_NAME=k8s --and so on, longer than the " +
		"terminal is"
	lost := status.Report{State: "/a/folder",
		Now: &status.Overview{Lost: &status.Lost{Sentence: "the API of cluster k8s does not answer", Command: command}}}
	pivot := status.Report{State: "/a/folder",
		Now: &status.Overview{Pivot: &status.Pivot{Sentence: "the pivot of cluster k8s has not ended",
			Command: command}}}
	pivot.TellRun("")
	for begins, r := range map[string]status.Report{"the API of cluster k8s does not": lost,
		"the pivot of cluster k8s has not ended; it was": pivot} {
		var text strings.Builder
		if err := r.Print(&text, 60); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text.String(), begins) || !strings.Contains(text.String(), ": "+command+"\n") ||
			strings.Contains(text.String(), "nothing is waited for") {
			t.Errorf("it says\n%s", text.String())
		}
	}
	pivot = status.Report{Now: &status.Overview{Pivot: &status.Pivot{Sentence: "the pivot", Command: command}}}
	if pivot.TellRun("process 1 on here"); pivot.Now.Pivot.Command != "" ||
		!strings.Contains(pivot.Now.Pivot.Sentence, "a run is at work on it (process 1 on here)") {
		t.Errorf("while a run is at work: %+v", pivot.Now.Pivot)
	}
	var none strings.Builder
	if err := (status.Report{Now: &status.Overview{}}).Print(&none, 0); err != nil ||
		!strings.Contains(none.String(), "nothing is waited for") {
		t.Errorf("where nothing is lost it says %s", none.String())
	}
}

// The lock of a run that was killed still has its name.
func TestAtWork(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	write := func(pid int, host string) {
		t.Helper()
		data, err := json.Marshal(map[string]any{"pid": pid, "host": host})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, statedir.JournalLock), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if is := statedir.AtWork(statedir.Dir(dir)); is != "" {
		t.Errorf("without a lock: %s", is)
	}
	write(os.Getpid(), host)
	if is := statedir.AtWork(statedir.Dir(dir)); is != fmt.Sprintf("process %d on %s", os.Getpid(), host) {
		t.Errorf("of this process: %q", is)
	}
	write(1<<22+1, host) // more than Linux gives
	if is := statedir.AtWork(statedir.Dir(dir)); is != "" {
		t.Errorf("of a dead one: %s", is)
	}
	write(1<<22+1, "elsewhere")
	if is := statedir.AtWork(statedir.Dir(dir)); is == "" {
		t.Error("of another machine nothing is known, so a run may be at work")
	}
}
