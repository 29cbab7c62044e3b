//go:build unix

package cli

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Where Hetzner accepts connections and says nothing, what only looks tells so, and ends.
func TestLookingAtASilentHetznerEnds(t *testing.T) {
	t.Parallel()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	begun := statedir.Dir(filepath.Join(t.TempDir(), "state"))
	if err := begun.Files().Write(statedir.EnvironmentFile, []byte(statedir.EnvironmentHetzner+"\n")); err != nil {
		t.Fatal(err)
	}
	record := flow.Record{State: flow.StateFailed, Attempt: 1, Error: "no token"}
	if err := begun.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{"preflight": record}}); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const unanswered = "Hetzner has not answered within"
	// A hang is a failure of this test alone.
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var asking sync.WaitGroup
	for args, want := range map[string]ran{
		"status":     {code: ExitDone, stdout: "what is at Hetzner is not known: Hetzner gave no answer within 2s"},
		"plan":       {code: ExitDone, stdout: "what will be created and what it costs is not known: " + unanswered},
		"leftovers":  {code: ExitFailed, stderr: "list the "},
		"destroy -n": {code: ExitFailed, stderr: "list the "},
	} {
		asking.Go(func() {
			state, says := begun, unanswered
			if args == "status" {
				says = want.stdout // it waits for a shorter time
			} else {
				state = statedir.Dir(t.TempDir()) // before the first run
			}
			// Processes of their own: the logs of libraries are a process's.
			cmd := exec.CommandContext(ctx, self, append(strings.Fields(args), "--state-dir", string(state))...)
			cmd.Dir = string(state)
			cmd.Env = []string{"HOME=" + string(state), "PATH=" + os.Getenv("PATH"), quickCommand + "=1",
				settings.TokenVariable + "=x", settings.EndpointVariable + "=" + silent.URL}
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if _, err := cmd.StdinPipe(); err != nil {
				t.Error(err)
				return
			}
			_ = cmd.Run() // the code tells
			r := ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
			if r.code != want.code || !strings.Contains(r.stdout+r.stderr, says) || !strings.Contains(r.stdout, want.stdout) ||
				!strings.Contains(r.stderr, want.stderr) || ctx.Err() != nil {
				t.Errorf("%s: %+v", args, r)
			}
		})
	}
	asking.Wait()
}
