package session

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
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

// A session is closed also where what uses it panics: the files of the run are complete, and the lease is given back.
func TestASessionThatPanicsIsClosed(t *testing.T) {
	k := Cluster{Caller: &Caller{Hide: &redact.Redactor{}, WorkDir: t.TempDir()},
		Request: Request{Options: Options{StateDir: filepath.Join(t.TempDir(), "state")}},
		Cfg:     settings.Configuration{Config: config.Defaults()}}
	var opened *Session
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic does not come through")
			}
		}()
		_ = k.do(t.Context(), Access{}, nil, func(_ context.Context, s *Session) error {
			opened = s
			return fmt.Errorf("%d", explodeInAStep(nil))
		})
	}()
	if _, err := os.Stat(opened.runFile(runs.RequestsFile)); err != nil {
		t.Errorf("it was not closed: %v", err)
	}
}

// What an operator agreed to counts for one run.
func TestAnAgreementIsForOneRun(t *testing.T) {
	s := &Session{agreed: []string{"delete a server"}}
	if err := s.Agree(t.Context(), Questions{}, nil); err != nil || len(s.agreed) > 0 {
		t.Errorf("the next run has agreed to %q: %v", s.agreed, err)
	}
}

// A rehearsal needs no container engine, so that one which kind does not know is no reason to refuse it.
func TestARehearsalNeedsNoEngine(t *testing.T) {
	t.Setenv("KIND_EXPERIMENTAL_PROVIDER", "nonsense")
	for _, lab := range []bool{false, true} {
		k := Cluster{Caller: &Caller{Hide: &redact.Redactor{}}, Request: Request{Options: Options{Lab: lab}},
			Cfg: settings.Configuration{Config: config.Defaults()}}
		if _, err := k.LocalTools(statedir.Dir(t.TempDir())); (err == nil) != lab {
			t.Errorf("in the lab %t: %v", lab, err)
		}
	}
}
