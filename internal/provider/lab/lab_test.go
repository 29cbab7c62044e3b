package lab

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/child"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

func quiet(string, ...any) {}

// program writes a shell script that plays the lab's daemon.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lab")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLabThatDiesAtItsStart(t *testing.T) {
	l := &Lab{Dir: t.TempDir(), Latency: "fast", Environment: map[string]string{"PATH": os.Getenv("PATH"),
		"HCLOUD_TOKEN": secret}}
	l.Client = NewClient(l.Dir)
	if err := os.WriteFile(filepath.Join(l.Dir, "lab.log"), []byte("of an earlier start\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := l.daemon().Start(t.Context(), program(t, "echo \"args $*\"; env; echo cannot bind >&2; exit 3"),
		l.arguments("/programs", "", nil, "", "", ""), quiet)
	if err == nil || time.Since(began) > upWithin/2 {
		t.Fatalf("error is %v after %s", err, time.Since(began))
	}
	for _, says := range []string{"exit status 3", "cannot bind", "lab.log", "args serve --dir " + l.Dir +
		" --latency fast --bin /programs"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("error %q does not say %q", err, says)
		}
	}
	for _, not := range []string{"earlier start", secret} {
		if strings.Contains(err.Error(), not) {
			t.Errorf("error %q says %q", err, not)
		}
	}
	if info, err := os.Stat(filepath.Join(l.Dir, "lab.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log: %v, %v", info.Mode(), err)
	}
}

func TestLabStartStopsWaitingWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	l := &Lab{Dir: dir, Latency: "fast", Client: NewClient(dir)}
	ctx, cancel := contextWithCause(t)
	_, err := l.daemon().Start(ctx, program(t, "exec sleep 30"), l.arguments("/programs", "", nil, "", "", ""), func(format string, args ...any) {
		if pid, ok := args[0].(int); ok {
			t.Cleanup(func() { endProcess(t, pid) })
		}
		cancel(flow.ErrInterrupted)
	})
	if !errors.Is(err, flow.ErrInterrupted) {
		t.Errorf("error is %v", err)
	}
}

func TestFindLabModule(t *testing.T) {
	root := t.TempDir()
	source := filepath.Join(root, "lab")
	below := filepath.Join(root, "a", "lab") // a folder of that name that is something else
	for _, dir := range []string{source, below} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{
		filepath.Join(source, "go.mod"): "module " + Module + "\n\ngo 1.26\n",
		filepath.Join(below, "go.mod"):  "module example.com/lab\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := findModule(below); err != nil || got != source {
		t.Errorf("found %q, %v", got, err)
	}
	if got, err := findModule(t.TempDir()); err != nil || got != "" {
		t.Errorf("outside of a clone: %q, %v", got, err)
	}
}

func TestCompilationProgress(t *testing.T) {
	var said []string
	c := &compilation{say: func(format string, args ...any) { said = append(said, format) },
		said: time.Now().Add(-time.Hour)}
	for _, part := range []string{
		"go: downloading k8s.io/api v0.32.3\n", "internal/abi\nk8s.io/ap", "i/core/v1\n",
		"# k8s.io/broken\n", "x.go:3:1: undefined: y\n",
	} {
		if n, err := c.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	if c.packages != 2 || c.now != "k8s.io/api/core/v1" || len(said) != 1 {
		t.Errorf("%d packages, now %q, said %d times", c.packages, c.now, len(said))
	}
	if !slices.Equal(c.other, []string{"# k8s.io/broken", "x.go:3:1: undefined: y"}) {
		t.Errorf("the rest is %q", c.other)
	}
}

// The lab and the compilers get no secret to see.
func TestChildrenSeeNoSecrets(t *testing.T) {
	environ := []string{"PATH=/bin", "HOME=/home", "GOFLAGS=-mod=mod", "PASSWORD=" + secret, "HCLOUD_ENDPOINT=x"}
	for _, name := range child.SecretVariables() {
		environ = append(environ, name+"="+secret)
	}
	environment := settings.Environ(environ)
	if got := daemonEnvironment(environment); !slices.Equal(got, []string{"HOME=/home", "PATH=/bin"}) {
		t.Errorf("the lab sees %q", got)
	}
	got := withoutSecrets(environment)
	if !slices.Equal(got, []string{"GOFLAGS=-mod=mod", "HOME=/home", "PASSWORD=" + secret, "PATH=/bin"}) {
		t.Errorf("go sees %q", got)
	}
}

// The programs' key follows everything that goes into them.
func TestProgramsHaveAKeyOfTheirOwn(t *testing.T) {
	source := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/lab\n")
	write("go.sum", "")
	b := &builder{env: os.Environ()}
	keys := map[string]bool{}
	for _, change := range []func(){func() {}, func() { write("go.mod", "module example.com/lab2\n") },
		func() { write("go.sum", "x\n") }} {
		change()
		key, err := b.key(t.Context(), toolset{module: source}, "-s")
		if err != nil {
			t.Fatal(err)
		}
		keys[key] = true
	}
	for flags, of := range map[string]toolset{"-w": {module: source}, "-s": {module: source, packages: []string{"a"}}} {
		if key, err := b.key(t.Context(), of, flags); err != nil || keys[key] || len(keys) != 3 {
			t.Errorf("keys are %v and %s, %v", keys, key, err)
		}
	}
}

func TestWaitForLockSaysWho(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := flow.LockFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	again, err := waitForLock(t.Context(), path, "building", func(format string, args ...any) {
		said = format
		if err := unlock(); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !strings.Contains(said, "waiting for process") {
		t.Fatalf("said %q, %v", said, err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}
