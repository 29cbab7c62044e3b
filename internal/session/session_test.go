package session

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

// The log says where a step panicked; the message has no room for it.
func TestTheLogHasTheStackOfAPanic(t *testing.T) {
	g := flow.New("panic")
	flow.Add(g, flow.Task[int]{
		Name: "explode",
		Run:  flow.Do(func(context.Context, flow.Say) (int, error) { return explodeInAStep(nil), nil }),
	})
	_, err := g.Run(t.Context(), flow.Options{Journal: flow.Memory(), Run: "1"})
	var log bytes.Buffer
	logPanic(&log, err)
	if err == nil || strings.Contains(err.Error(), "explodeInAStep") || !strings.Contains(log.String(), "explodeInAStep") {
		t.Errorf("%v; the log: %q", err, log.String())
	}
}

func explodeInAStep(p *int) int { return *p }

// What a sealed step made and is gone comes not back by running again: the advice is another one.
func TestASealedStepIsNotRunAgain(t *testing.T) {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := func(target ...string) string { return platform.ShellCommand(append(target, "--lab")...) }
	s := &Session{Cluster: Cluster{Caller: &Caller{CommandLine: command}}, Folder: "there",
		Files: &statedir.RunFiles{Log: log}}
	for by, says := range map[string]string{
		"clean": "to continue from there: bootstrap all --lab\n",
		"pivot": "the servers do not answer; it is not run a second time\nwhat is done is kept in there; log: " + log.Name() +
			"\nwhich disaster it is, and what to type: bootstrap restore --diagnose --lab",
	} {
		e := &flow.SealedError{Step: "pivot", By: by, Reason: "the servers do not answer"}
		if got := s.adviseOnSealed(e, e).Error(); !strings.Contains(got, says) ||
			strings.Contains(got, "run the same command") {
			t.Errorf("by %s: %s", by, got)
		}
	}
}
