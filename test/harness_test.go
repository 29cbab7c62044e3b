// Package test runs the built command from outside, as an operator does, and checks the results: the end to end
// rehearsal in the lab. It needs the lab's programs (`go run ./cmd/bootstrap lab build`, about seven minutes the first
// time), so a bare `go test ./...` on a machine without them skips these tests with a line that says so, and does not
// reach Go's limit of ten minutes. The README's test command builds them first.
package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// plantedToken replaces the token of a real project in the environment: no run may reveal it, and a rehearsal may not
// even use it.
const plantedToken = "plantedPlantedPlantedPlantedPlantedPlantedPlantedPlanted64chars"

// command is the built command, as one operator uses it in one folder.
type command struct {
	t     *testing.T
	bin   string
	dir   string // working directory
	state string // --state-dir
	env   []string

	mu   *sync.Mutex
	args map[string]bool // every argument list of a process of this machine during the runs
}

// inShort is the one test in a lab that go test -short does not leave out.
const inShort = "TestFirstDay"

// newCommand builds the command and creates a folder for it. The lab that it starts ends with the test.
func newCommand(t *testing.T) *command {
	t.Helper()
	if testing.Short() && t.Name() != inShort {
		t.Skipf("with -short, %s alone runs in a lab; make test-all runs this one", inShort)
	}
	root := repositoryRoot(t)
	bin := buildCommand(t)
	needPrograms(t, bin, root)
	dir := t.TempDir()
	c := &command{t: t, bin: bin, dir: root, state: filepath.Join(dir, "state"), mu: &sync.Mutex{},
		args: map[string]bool{}}
	t.Cleanup(func() {
		if out, err := c.exec(context.Background(), "lab", "down"); err != nil {
			t.Errorf("lab down: %v\n%s", err, out)
		}
	})
	return c
}

// leftOut are the tests that were skipped because the lab's programs are not built.
var leftOut struct {
	sync.Mutex
	tests []string
}

// needPrograms skips the test if the lab's programs are not built. TestMain fails once for all of them, unless -short
// is given.
func needPrograms(t *testing.T, bin, root string) {
	t.Helper()
	check := exec.Command(bin, "lab", "build", "--check")
	check.Dir = root
	out, err := check.CombinedOutput()
	if err == nil {
		return
	}
	leftOut.Lock()
	leftOut.tests = append(leftOut.tests, t.Name())
	leftOut.Unlock()
	t.Skipf("the lab's programs are not built: %s", out)
}

func repositoryRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "lab", "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no folder above the test holds lab/go.mod")
		}
	}
}

func (c *command) cmd(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.bin, append(args, "--state-dir", c.state)...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "HCLOUD_TOKEN="+plantedToken, "NO_COLOR=1")
	cmd.Env = append(cmd.Env, c.env...)
	return cmd
}

// exec runs the command and returns its output.
func (c *command) exec(ctx context.Context, args ...string) (string, error) {
	out, err := c.cmd(ctx, args...).CombinedOutput()
	return string(out), err
}

// event is a line of --output json.
type event struct {
	Time    time.Time     `json:"time"`
	Kind    string        `json:"kind"`
	Step    string        `json:"step"`
	Message string        `json:"message"`
	Elapsed time.Duration `json:"elapsedNs"`
	Err     string        `json:"error"`
}

// outcome is the result of one run of the command.
type outcome struct {
	exit    int
	elapsed time.Duration
	maxRSS  int64 // bytes
	events  []event
	output  string // standard output and error, in their order
	state   string // folder
}

// end are the last lines of the output, and the failures before them, because all of it would hide them in the log of a
// test; of a run that failed what the servers' logs say besides.
func (o outcome) end() string {
	const last = 15
	lines := strings.Split(strings.TrimSpace(o.output), "\n")
	first := max(len(lines)-last, 0)
	failures := slices.DeleteFunc(slices.Clone(lines[:first]), func(line string) bool {
		return !strings.Contains(line, `"kind":"step-failed"`)
	})
	lines = append(failures, lines[first:]...)
	if o.exit != 0 {
		lines = append(lines, serverLogs(o.state))
	}
	return strings.Join(lines, "\n")
}

// run runs the command with --output json. It calls watch with each event and the process, so that a test can interrupt
// it.
func (c *command) run(watch func(event, *os.Process), args ...string) outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := c.cmd(ctx, append(args, "--output", "json")...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	o := outcome{state: c.state}
	var lines strings.Builder
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		lines.WriteString(scanner.Text() + "\n")
		var e event
		if err := json.Unmarshal(scanner.Bytes(), &e); err != nil {
			c.t.Errorf("with --output json a line is not JSON: %s", scanner.Text())
			continue
		}
		o.events = append(o.events, e)
		o.maxRSS = max(o.maxRSS, peakRSS(cmd.Process.Pid))
		c.lookAtArguments()
		if watch != nil {
			watch(e, cmd.Process)
		}
	}
	err = cmd.Wait()
	o.elapsed, o.output = time.Since(began), lines.String()+stderr.String()
	o.exit = cmd.ProcessState.ExitCode()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if strings.Contains(o.output, plantedToken) {
		c.t.Errorf("the token is in the output of %v", args)
	}
	return o
}

// lookAtArguments records what `ps` shows now.
func (c *command) lookAtArguments() {
	lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, path := range lists {
		if data, err := os.ReadFile(path); err == nil { // otherwise it has ended
			c.args[string(data)] = true
		}
	}
}

// peakRSS is the most memory that a process has had resident so far, in bytes; 0 if it is gone. What the system counts
// for a child that has ended holds the compilers that it ran, too.
func peakRSS(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	return 0
}

// steps are the steps with an event of a kind, in the order of the events, without the event of the lab's start, which
// is not a step of the graph.
func (o outcome) steps(kind string) []string {
	var names []string
	for _, e := range o.events {
		if e.Kind == kind && e.Step != "lab" {
			names = append(names, e.Step)
		}
	}
	return names
}

// span is when a step began and ended; ok only if both are known.
func (o outcome) span(step string) (began, ended time.Time, ok bool) {
	for _, e := range o.events {
		switch {
		case e.Step != step:
		case e.Kind == "step-started":
			began = e.Time
		case e.Kind == "step-done":
			ended = e.Time
		}
	}
	return began, ended, !began.IsZero() && !ended.IsZero()
}

// labStatus is the part of the lab's status that the tests read.
type labStatus struct {
	Processes []process `json:"processes"`
	Listeners []string  `json:"listeners"`
}

// process is one of the lab's.
type process struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	Cluster  string `json:"cluster"`
	RSSBytes int64  `json:"rssBytes"`
}

// filesUnder reads every regular file below a folder, except those below the named folders.
func filesUnder(dir string, except ...string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, e := range except {
			if d.IsDir() && path == filepath.Join(dir, e) {
				return filepath.SkipDir
			}
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		files[path] = data
		return nil
	})
	return files, err
}
