package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// With this variable set the test binary acts as a child, or as a daemon with children.
const roleVar = "SLIPWAY_PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		os.Exit(m.Run())
	case "print":
		fmt.Println("args", os.Args[1:], "env", os.Environ())
		os.Exit(3)
	case "sleep":
		fmt.Println("asleep")
		time.Sleep(time.Hour)
	case "stubborn":
		ignoreTERM()
		fmt.Println("asleep")
		time.Sleep(time.Hour)
	case "parent": // starts a grandchild in its own group and sleeps
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{roleVar + "=sleep"}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("grandchild", cmd.Process.Pid)
		time.Sleep(time.Hour)
	case "daemon": // a supervisor with one child, whose pid it prints
		p, err := New().Start(Spec{Name: "child", Path: os.Args[0], Env: []string{roleVar + "=sleep"}})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(p.PID())
		time.Sleep(time.Hour)
	}
}

func start(t *testing.T, s *Supervisor, role string) (*Process, string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := s.Start(Spec{Name: role, Path: self(t), Args: []string{"one", "two"}, Env: []string{roleVar + "=" + role},
		LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	return p, log
}

func TestStartGivesArgumentsAndNothingElse(t *testing.T) {
	t.Setenv("SLIPWAY_PROC_TEST_SECRET", "planted")
	s := New()
	p, log := start(t, s, "print")
	await(t, "the end of the process", func() bool { _, ok := p.Exit(); return ok })
	exit, _ := p.Exit()
	if exit.Code != 3 || exit.Reason != "exit status 3" || exit.PID != p.PID() {
		t.Errorf("exit %+v", exit)
	}
	if got, want := Tail(log, 5), "args [one two] env ["+roleVar+"=print]"; got != want {
		t.Errorf("log %q, want %q", got, want)
	}
	if info, err := os.Stat(log); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("log's mode %v, %v", info.Mode(), err)
	}
	if l := s.List(); len(l) != 0 {
		t.Errorf("an ended process is listed: %v", l)
	}
}

func TestStopAsksThenEnds(t *testing.T) {
	s := New()
	polite, politeLog := start(t, s, "sleep")
	stubborn, stubbornLog := start(t, s, "stubborn")
	awaitLog(t, politeLog, "asleep")
	awaitLog(t, stubbornLog, "asleep")

	list := s.List()
	if len(list) != 2 || list[0].Name != "sleep" || list[1].Name != "stubborn" {
		t.Fatalf("list %v", list)
	}
	if runtime.GOOS == "linux" && list[0].RSSBytes == 0 {
		t.Error("no resident memory")
	}

	if err := polite.Stop(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
	if exit, ok := polite.Exit(); !ok || exit.Reason != "signal: terminated" {
		t.Errorf("polite: %+v, %v", exit, ok)
	}
	if err := stubborn.Stop(context.Background(), 200*time.Millisecond); err != nil {
		t.Error(err)
	}
	if exit, ok := stubborn.Exit(); !ok || exit.Reason != "signal: killed" {
		t.Errorf("stubborn: %+v, %v", exit, ok)
	}
}

func TestStopAllEndsEverythingAndRefusesMore(t *testing.T) {
	s := New()
	_, log := start(t, s, "parent")
	grandchild := awaitLog(t, log, "grandchild ")
	service, err := s.Keep(Spec{Name: "kept", Path: self(t), Env: []string{roleVar + "=sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StopAll(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if l := s.List(); len(l) != 0 {
		t.Errorf("left: %v", l)
	}
	if _, err := s.Start(Spec{Name: "late", Path: self(t)}); !errors.Is(err, ErrStopped) {
		t.Errorf("a start after the stop: %v", err)
	}
	if err := service.Stop(context.Background(), 0); err != nil {
		t.Error(err)
	}
	pid, err := strconv.Atoi(grandchild)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the grandchild", func() bool { return !alive(pid) })
}

func TestKeepStartsAgain(t *testing.T) {
	s := New()
	v, err := s.Keep(Spec{Name: "kept", Path: self(t), Env: []string{roleVar + "=sleep"}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Stop(context.Background(), 0)
	first := v.Process()
	if err := first.Stop(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	await(t, "a second run", func() bool { return v.Process() != first })
	if n, exit := v.Ends(); n != 1 || exit.Reason != "signal: killed" {
		t.Errorf("ends %d, %+v", n, exit)
	}
	second := v.Process()
	if err := v.Restart(context.Background(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if third := v.Process(); third == second {
		t.Error("a restart left the old run in place")
	}
	if err := v.Stop(context.Background(), time.Minute); err != nil {
		t.Error(err)
	}
	if l := s.List(); len(l) != 0 {
		t.Errorf("left: %v", l)
	}
}

func TestChildrenDieWithTheDaemon(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a daemon that is killed")
	}
	cmd := exec.Command(self(t))
	cmd.Env = []string{roleVar + "=daemon"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatal("the child was never there")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	await(t, "the end of the child", func() bool { return !alive(child) })
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var b strings.Builder
	for i := range 10000 {
		fmt.Fprintln(&b, "line", i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := Tail(path, 2), "line 9998\nline 9999"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Tail(path+"x", 2); got != "" {
		t.Errorf("a missing file gave %q", got)
	}
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// alive says whether the process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// await polls until ok holds, for at most ten seconds.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within 10 s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitLog waits for a line with the given prefix and returns what follows it.
func awaitLog(t *testing.T, path, prefix string) (rest string) {
	t.Helper()
	await(t, fmt.Sprintf("line %q in %s", prefix, path), func() bool {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if r, ok := strings.CutPrefix(line, prefix); ok && strings.HasSuffix(r, "\n") {
				rest = strings.TrimSpace(r)
				return true
			}
		}
		return false
	})
	return rest
}

func ignoreTERM() {
	// A handler that does nothing, where signal.Ignore would be inherited by what the process starts.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	go func() {
		for range c {
		}
	}()
}
