package test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// shared has bootstrapped clusters, by the target that created them, for all tests of this process.
var shared = map[string]*sharedLab{}

// sharedLab is a saved lab. While no test runs a copy of it, its addresses are reserved, so that no other lab takes
// them.
type sharedLab struct {
	dir      string
	endpoint string // host and port of the simulated Hetzner API, by which a lab has its place
	held     net.Listener
}

// theCommand is built once for all tests.
var theCommand struct {
	once sync.Once
	dir  string
	err  error
}

// built is the command's path. It is built with fault injection, which no released binary has.
func built(source string) (string, error) {
	c := &theCommand
	c.once.Do(func() {
		if c.dir, c.err = os.MkdirTemp("", "slipway-built-"); c.err != nil {
			return
		}
		build := exec.Command("go", "build", "-tags", "crash,kustomize_disable_go_plugin_support",
			"-o", filepath.Join(c.dir, "bootstrap"), "./cmd/bootstrap")
		build.Dir = source
		if out, err := build.CombinedOutput(); err != nil {
			c.err = fmt.Errorf("build the command: %w\n%s", err, out)
		}
	})
	return filepath.Join(c.dir, "bootstrap"), c.err
}

func TestMain(m *testing.M) {
	// No test dials a registry outside of this machine, whatever is built or cached.
	if err := os.Setenv("LAB_PROGRAMS", "source"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	code := m.Run()
	if len(leftOut.tests) > 0 && !testing.Short() { // what is skipped go test does not show
		fmt.Printf("not run, because the lab's programs are not built: %s\nBuild them (go run ./cmd/bootstrap lab build, "+
			"about ten minutes) "+
			"and run the tests again, or leave these out with go test -short.\n", strings.Join(leftOut.tests, ", "))
		code = max(code, 1)
	}
	_ = os.RemoveAll(theCommand.dir) // "" if nothing was built: that removes nothing
	for _, s := range shared {
		s.letGo()
		_ = os.RemoveAll(filepath.Dir(s.dir))
	}
	os.Exit(code)
}

// bootstrapped returns a command with its own cluster that a target created: "bootstrap", with the temporary management
// cluster, or "all", managing itself. The first test that needs it creates it; the others load it.
func bootstrapped(t *testing.T, target string) *command {
	t.Helper()
	c := newSharing(t, target)
	s := shared[target]
	if s == nil {
		if o := c.run(nil, target, "--lab"); o.exit != 0 {
			t.Fatalf("%s: exit %d\n%s", target, o.exit, o.end())
		}
		c.share(target)
		return c
	}
	s.letGo()
	c.lab("load", s.dir)
	return c
}

// newSharing is newCommand for a test that shares what the target makes, or has it from another.
func newSharing(t *testing.T, target string) *command {
	t.Helper()
	t.Cleanup(func() { shared[target].hold(t) }) // after the end of the lab, for which newCommand asks
	return newCommand(t)
}

// share saves the cluster that the target has just created for later tests, unless it is saved already. The lab keeps
// running.
func (c *command) share(target string) {
	c.t.Helper()
	if shared[target] != nil {
		return
	}
	parent, err := os.MkdirTemp("", "slipway-shared-")
	if err != nil {
		c.t.Fatal(err)
	}
	s := &sharedLab{dir: filepath.Join(parent, target)}
	c.lab("save", s.dir)
	var state struct{ Endpoint string }
	data, err := os.ReadFile(filepath.Join(s.dir, "saved.json"))
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	at, err := url.Parse(state.Endpoint)
	if err != nil || at.Host == "" {
		c.t.Fatalf("the saved lab's address %q: %v", state.Endpoint, err)
	}
	s.endpoint = at.Host
	shared[target] = s
}

func (s *sharedLab) hold(t *testing.T) {
	if s == nil || s.held != nil {
		return
	}
	l, err := net.Listen("tcp", s.endpoint)
	if err != nil {
		t.Errorf("hold the shared lab's addresses: %v", err)
		return
	}
	s.held = l
}

func (s *sharedLab) letGo() {
	if s.held != nil {
		_ = s.held.Close()
		s.held = nil
	}
}
