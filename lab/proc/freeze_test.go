package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stateOf is the system's letter for a process's state; empty if the process or the letter does not exist.
func stateOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return rest[:1]
}

func TestFreeze(t *testing.T) {
	if stateOf(os.Getpid()) == "" {
		t.Skip("this system does not tell what a process does")
	}
	p, log := start(t, New(), "sleep")
	awaitLog(t, log, "asleep")
	thaw := p.Freeze()
	if state := stateOf(p.PID()); state != "T" {
		t.Errorf("frozen, it is in state %s", state)
	}
	other := p.Freeze()
	thaw()
	thaw()
	if state := stateOf(p.PID()); state != "T" {
		t.Errorf("one of two callers thawed it: state %s", state)
	}
	other()
	await(t, "run", func() bool { return stateOf(p.PID()) != "T" })
	p.Freeze()
	began := time.Now()
	if err := p.Stop(t.Context(), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if passed := time.Since(began); passed > 3*time.Second {
		t.Errorf("one that is frozen ends only after %v", passed)
	}
	if exit, _ := p.Exit(); !strings.Contains(exit.Reason, "terminated") {
		t.Errorf("it ended by %q, not as it was asked to", exit.Reason)
	}
}

func TestFreezeAll(t *testing.T) {
	s := New()
	one, _ := start(t, s, "sleep")
	two, _ := start(t, s, "sleep")
	thaw := s.Freeze()
	if a, b := stateOf(one.PID()), stateOf(two.PID()); a != b || a != "T" && a != "" {
		t.Errorf("frozen, they are in states %s and %s", a, b)
	}
	started := make(chan *Process)
	go func() {
		p, err := s.Start(Spec{Name: "third", Path: self(t), Env: []string{roleVar + "=sleep"}})
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	select {
	case <-started:
		t.Error("a process starts while all stand still")
	case <-time.After(100 * time.Millisecond):
	}
	thaw()
	if third := <-started; third != nil && stateOf(third.PID()) == "T" {
		t.Error("a process that was started after the thaw is frozen")
	}
	if err := s.StopAll(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

func TestHoldKeepsAServiceFromComingBack(t *testing.T) {
	s := New()
	v, err := s.Keep(Spec{Name: "held", Path: self(t), Env: []string{roleVar + "=sleep"},
		LogFile: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Stop(t.Context(), 0) })
	first := v.Process()
	release, err := v.Hold(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	second, err := v.Hold(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	release()
	time.Sleep(2 * firstPause) // the time in which it would come back
	if alive(first.PID()) || v.Process() != first {
		t.Error("a program that is held runs")
	}
	second()
	await(t, "next run", func() bool { return v.Process() != first })
	if release, err = v.Hold(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := v.Stop(t.Context(), 0); err != nil { // also while it is held
		t.Fatal(err)
	}
	release()
	if left := s.List(); len(left) != 0 {
		t.Errorf("left running: %v", left)
	}
}
