package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// commandVariable makes a test binary the command: a stand-in for it.
const commandVariable = "SERVETEST_COMMAND"

// Targets that the stand-in has.
const (
	quickTarget   = "quick"   // does a step and is done
	waitingTarget = "waiting" // works until the file gate is in the folder that it works in, or it is interrupted
	stuckTarget   = "stuck"   // as waitingTarget, and the first interrupt does not end it
	failingTarget = "failing" // says why on standard error, and fails before it begins
)

// gate is the file that lets a run that waits go on.
const gate = "gate"

// secretVariable is a secret that the stand-in is careless with: it is in everything that it says and writes.
const secretVariable = "SERVETEST_SECRET"

// targetsOfCommand are those targets.
func targetsOfCommand() []string {
	return []string{quickTarget, waitingTarget, stuckTarget, failingTarget}
}

// commandEnv is the environment of the stand-in.
func commandEnv(more ...string) []string {
	return append(os.Environ(), append(more, commandVariable+"=1")...)
}

// isCommand reports whether this process is to be the command.
func isCommand() bool { return os.Getenv(commandVariable) != "" }

// commandMain is the command. It returns its exit code.
func commandMain() int {
	args := os.Args[1:]
	state := statedir.Dir(valueOf(args, "--state-dir"))
	secret := os.Getenv(secretVariable)
	switch args[0] {
	case "plan", "status":
		return printDocument(map[string]any{"kind": args[0], "words": args, "secret": secret})
	case "doctor": // finds something: a document and an exit code
		return max(1, printDocument(map[string]any{"kind": "doctor", "failed": 1}))
	case "effects":
		return printDocument(map[string]any{"run": args[1], "effects": []string{}})
	case "slow":
		time.Sleep(time.Minute)
		return 0
	case "large":
		fmt.Println(`"` + strings.Repeat("x", 10<<20) + `"`)
		return 0
	case "report":
		page := "<!DOCTYPE html><title>report</title><p>" + secret
		path := state.Path(filepath.Join(statedir.RunsFolder, args[1], "report.html"))
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return printDocument(map[string]any{"kind": "report"})
	case failingTarget:
		fmt.Fprintln(os.Stderr, "error: the configuration is wrong:", secret)
		return 2
	}
	if err := commandRun(state, args); errors.Is(err, flow.ErrInterrupted) {
		fmt.Fprintln(os.Stderr, "interrupted: run the same command again to resume", secret)
		return 130
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func valueOf(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func printDocument(document any) int {
	data, err := json.Marshal(document)
	if err != nil {
		return 1
	}
	fmt.Println(string(data))
	return 0
}

// commandRun is a run of one step, with the files that a run has.
func commandRun(state statedir.Dir, args []string) error {
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, syscall.SIGINT)
	id := fmt.Sprintf("%s-%d", time.Now().UTC().Format("20060102T150405.000Z"), os.Getpid())
	files, err := state.OpenRun(id)
	if err != nil {
		return err
	}
	began := time.Now()
	event := func(kind flow.EventKind, step, message, failed string) {
		_ = json.NewEncoder(files.Events).Encode(flow.Event{Time: time.Now(), Kind: kind, Run: id, Step: step,
			Message: message, Elapsed: time.Since(began), Err: failed})
	}
	setup, err := json.Marshal(runs.Setup{Environment: statedir.EnvironmentLab, Cluster: "desk", Targets: args[:1]})
	if err == nil {
		err = os.WriteFile(state.Path(filepath.Join(statedir.RunsFolder, id, runs.SetupFile)), setup, 0o600)
	}
	if err != nil {
		return err
	}
	rate, _ := json.Marshal(map[string]any{"requests": 7, "slowed": 1, "refused": 0, "waitedNs": 2e9, "limit": 3600,
		"remaining": 3001})
	if err := os.WriteFile(state.Path(filepath.Join(statedir.RunsFolder, id, runs.RateFile)), rate, 0o600); err != nil {
		return err
	}
	event(flow.RunStarted, "", "2 steps", "")
	event(flow.StepStarted, "first", "it has not run yet", "")
	for i, phase := range []effect.Phase{effect.Leaves, effect.Applied} {
		_ = json.NewEncoder(files.Effects).Encode(effect.Line{Time: time.Now(), Seq: i + 1, System: effect.Hetzner,
			Verb: "create", Object: "servers/one", Nth: 1, Phase: phase, Step: "first"})
	}
	event(flow.StepDone, "first", "made", "")
	event(flow.StepStarted, "second", "it has not run yet", "")
	event(flow.StepProgress, "second", "waiting for 3 servers "+os.Getenv(secretVariable), "")
	for args[0] != quickTarget {
		if _, err := os.Stat(gate); err == nil {
			break
		}
		select {
		case <-interrupts:
			if args[0] == stuckTarget {
				event(flow.StepProgress, "second", "does not end yet", "")
				<-interrupts
			}
			event(flow.StepInterrupted, "second", "waiting for 3 servers", "")
			event(flow.RunFinished, "", "", flow.ErrInterrupted.Error())
			return flow.ErrInterrupted
		case <-time.After(10 * time.Millisecond):
		}
	}
	event(flow.StepDone, "second", "made", "")
	event(flow.RunFinished, "", "", "")
	return nil
}
