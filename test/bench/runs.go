package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// workbench is where the programs and the runs of a comparison are.
type workbench struct {
	dir  string // of the comparison
	root string // of the clone
	keep bool
}

// programs is the folder of what prepare builds.
func (w workbench) programs() string { return filepath.Join(w.dir, "bin") }

func (w workbench) program(name string) string { return filepath.Join(w.programs(), name) }

// prepare builds what both sides need.
func prepare(ctx context.Context, o options) (workbench, error) {
	root, err := clone()
	if err != nil {
		return workbench{}, err
	}
	w := workbench{dir: o.work, root: root, keep: o.keep}
	if w.dir == "" {
		if w.dir, err = os.MkdirTemp("", "slipway-bench-"); err != nil {
			return w, err
		}
	}
	if w.dir, err = filepath.Abs(w.dir); err != nil {
		return w, err
	}
	if err := os.MkdirAll(w.programs(), 0o700); err != nil {
		return w, err
	}
	build := func(folder string, args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = filepath.Join(root, folder)
		cmd.Env = append(os.Environ(), "GOBIN="+w.programs())
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
		}
		return nil
	}
	fmt.Fprintln(os.Stderr, "building clusterctl, helm, kubectl, Slipway and the lab's programs")
	return w, errors.Join(
		build("test/bench/tools", "install", "tool"),
		build(".", "build", "-o", w.program("slipway"), "./cmd/bootstrap"),
		build(".", "build", "-o", w.program("bench"), "./test/bench"),
		w.slipway(ctx, "", nil, "lab", "build").Run(),
	)
}

// clone is the folder of the clone that the command is called in.
func clone() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "bench", "guide.mk")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no folder above this one is a clone of Slipway: call it in one")
		}
	}
}

// slipway is Slipway in a state folder; without one where it needs none.
func (w workbench) slipway(ctx context.Context, state string, output io.Writer, args ...string) *exec.Cmd {
	if state != "" {
		args = append(args, "--state-dir", state)
	}
	cmd := exec.CommandContext(ctx, w.program("slipway"), args...)
	cmd.Dir = w.root
	cmd.Env = append(environment(), "LAB_PROGRAMS=source", "VERSIONS=guide") // as the Makefile
	cmd.Stdout, cmd.Stderr = output, os.Stderr
	if output == nil {
		cmd.Stdout = os.Stderr
	}
	return ended(cmd)
}

// environment is this process's, without what would configure one of the sides.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name != "KUBECONFIG" && name != "HCLOUD_TOKEN" && name != "MAKEFLAGS" && name != "MFLAGS" && name != "MAKELEVEL" {
			env = append(env, v)
		}
	}
	return append(env, "NO_COLOR=1")
}

// ended makes a command end with everything that it started where the comparison is interrupted.
func ended(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// measure runs one side in a lab of its own, which is up before and down afterwards. The lab ends with this process in
// any case.
func (w workbench) measure(ctx context.Context, pace, side string) (m measured, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	folder, err := os.MkdirTemp(w.dir, pace+"-"+side+"-")
	if err != nil {
		return m, err
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return m, err
	}
	defer log.Close()
	state := filepath.Join(folder, "state")
	up := w.slipway(ctx, state, log, "lab", "up", "--lab-latency", pace, "--lab-until-gone", strconv.Itoa(os.Getpid()))
	up.Stderr = log
	if err := up.Run(); err != nil {
		return m, fmt.Errorf("lab up: %w", err)
	}
	defer func() {
		down := w.slipway(context.WithoutCancel(ctx), state, log, "lab", "down")
		down.Stderr = log
		if downErr := down.Run(); downErr != nil {
			err = errors.Join(err, fmt.Errorf("lab down: %w", downErr))
		}
		if err == nil && !w.keep {
			err = os.RemoveAll(folder)
		}
	}()
	l := labIn(filepath.Join(state, "lab"))
	i, err := l.info(ctx)
	if err != nil {
		return m, err
	}
	talos, err := w.configured(ctx, "TALOS_VERSION")
	if err != nil {
		return m, err
	}
	if err := l.ensureImage(ctx, imageOf(talos)); err != nil {
		return m, err
	}
	before := load()
	if side == sideMake {
		m, err = w.runMake(ctx, folder, i, log)
	} else {
		m, err = w.runSlipway(ctx, state, pace, log)
	}
	m.Pace, m.Side, m.Load = pace, side, before+" to "+load()
	return m, err
}

// load is the machine's load average of the last minute, where the system tells it.
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

// configured is the value that Slipway has for a variable of its configuration.
func (w workbench) configured(ctx context.Context, name string) (string, error) {
	var out bytes.Buffer
	if err := w.slipway(ctx, "", &out, "config", "show", "--output", "json").Run(); err != nil {
		return "", fmt.Errorf("ask Slipway for its configuration: %w", err)
	}
	return variable(out.Bytes(), name)
}

// runSlipway takes the times from the events of its run.
func (w workbench) runSlipway(ctx context.Context, state, pace string, log io.Writer) (measured, error) {
	cmd := w.slipway(ctx, state, nil, "all", "--lab", "--lab-latency", pace, "--output", "json")
	cmd.Stdout, cmd.Stderr = nil, log
	m := measured{Marks: map[string]float64{}}
	began := map[string]float64{}
	err := lines(cmd, log, func(at float64, line []byte) error {
		var e struct{ Kind, Step string }
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("an event of Slipway is no JSON: %w", err)
		}
		switch e.Kind {
		case "step-started":
			began[e.Step] = at
		case "step-done":
			m.Steps = append(m.Steps, span{e.Step, began[e.Step], at})
			switch e.Step {
			case "wait-nodes":
				m.Marks[markNodes] = at
			case "pivot":
				m.Marks[markPivot] = at
			}
		}
		return nil
	})
	return m, m.complete(err)
}

// complete is an error where a run ended without its marks.
func (m measured) complete(err error) error {
	if err == nil && (m.Marks[markNodes] == 0 || m.Marks[markPivot] == 0) {
		return errors.New("it ended without the nodes or the pivot")
	}
	return err
}

// lines calls got with each line of a command's output and the seconds since its start.
func lines(cmd *exec.Cmd, log io.Writer, got func(at float64, line []byte) error) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	scanner := bufio.NewScanner(out)
	scanner.Buffer(nil, 1<<20)
	var wrong error
	for scanner.Scan() {
		at := time.Since(start).Seconds()
		fmt.Fprintf(log, "%6.1f %s\n", at, scanner.Bytes())
		if err := got(at, scanner.Bytes()); err != nil && wrong == nil {
			wrong = err
		}
	}
	return errors.Join(scanner.Err(), cmd.Wait(), wrong)
}
