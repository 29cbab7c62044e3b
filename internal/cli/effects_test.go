//go:build unix

package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/crash"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
)

const crashChild = "SLIPWAY_TEST_CRASH_ENDPOINT" // set where this process is the one that ends itself

// TestCrashChild is no test but a run of one step that makes a firewall, in a process of its own.
func TestCrashChild(t *testing.T) {
	endpoint := os.Getenv(crashChild)
	if endpoint == "" {
		t.Skip("it is started by TestCrashPoints")
	}
	if reply, err := http.Get(endpoint + "/begin"); err != nil { // answered when everything is ready for what comes
		t.Fatal(err)
	} else if err := reply.Body.Close(); err != nil {
		t.Fatal(err)
	}
	state := statedir.Dir(os.Getenv("SLIPWAY_TEST_STATE"))
	places, err := crash.Parse(os.Getenv(effect.CrashVariable))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := os.OpenFile(state.Path(statedir.EffectsFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	recorder := effect.New(effect.Options{Lines: lines, Faults: crash.New(places)})
	defer recorder.Close()
	client := session.HetznerClient(endpoint, platform.NewSecret(secret), recorder, nil)
	if err := state.Files().Write(statedir.EnvironmentFile, []byte(statedir.EnvironmentHetzner)); err != nil {
		t.Fatal(err)
	}
	journal := statedir.NewRecordedJournal(state, statedir.Owner{Cluster: "k8s"}, statedir.EnvironmentHetzner, recorder)
	snapshot, err := journal.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	save := func(s flow.State) {
		snapshot.Format, snapshot.Graph = flow.Format, "test"
		snapshot.Steps = map[string]flow.Record{"firewall": {State: s, Attempt: 1}}
		if err := journal.Save(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
	}
	save(flow.StateStarted)
	if _, _, err := client.Firewall.Create(t.Context(), hcloud.FirewallCreateOpts{Name: "k8s"}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(state.Path("seen"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	save(flow.StateDone)
}

// crashed is what a child left.
type crashed struct {
	killed   bool
	served   int32 // requests
	seen     bool  // the caller had the reply
	recorded flow.State
	torn     int // bytes of the journal's temporary file
	lines    []effect.Line
}

func crashAt(t *testing.T, point string) crashed {
	t.Helper()
	var left crashed
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			return
		}
		atomic.AddInt32(&left.served, 1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"firewall":{"id":1,"name":"k8s"},"actions":[]}`)
	}))
	defer server.Close()
	state := statedir.Dir(t.TempDir())
	child := exec.Command(os.Args[0], "-test.run=^TestCrashChild$", "-test.v")
	child.Env = append(os.Environ(), crashChild+"="+server.URL+"/v1", "SLIPWAY_TEST_STATE="+string(state),
		effect.CrashVariable+"="+point)
	out, err := child.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	status, _ := child.ProcessState.Sys().(syscall.WaitStatus)
	left.killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	if !left.killed && err != nil {
		t.Fatalf("the child ended with %v\n%s", err, out)
	}
	_, err = os.Stat(state.Path("seen"))
	left.seen = err == nil
	snapshot, err := state.Journal().Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left.recorded = snapshot.Steps["firewall"].State
	if data, err := os.ReadFile(state.Path(statedir.JournalFile + ".tmp")); err == nil {
		left.torn = len(data)
	}
	file, err := os.Open(state.Path(statedir.EffectsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if left.lines, err = effect.Read(file); err != nil {
		t.Fatal(err)
	}
	return left
}

// Each point leaves what exists, the caller and the journal as its name says.
func TestCrashPoints(t *testing.T) {
	const key = " hetzner create firewalls/k8s#1"
	for point, want := range map[string]crashed{
		"before" + key:  {killed: true, served: 0, recorded: flow.StateStarted},
		"applied" + key: {killed: true, served: 1, recorded: flow.StateStarted},
		"replied" + key: {killed: true, served: 1, seen: true, recorded: flow.StateStarted},
		"torn" + key:    {killed: true, served: 1, seen: true, recorded: flow.StateStarted, torn: -1},
		"saved" + key:   {killed: true, served: 1, seen: true, recorded: flow.StateDone},

		"before journal save firewall/done#1":  {killed: true, served: 1, seen: true, recorded: flow.StateStarted},
		"torn journal save firewall/done#1":    {killed: true, served: 1, seen: true, recorded: flow.StateStarted, torn: -1},
		"applied journal save firewall/done#1": {killed: true, served: 1, seen: true, recorded: flow.StateDone},
		// as the run ends
		"replied journal save firewall/done#1":  {killed: true, served: 1, seen: true, recorded: flow.StateDone},
		"saved journal save firewall/started#1": {killed: true, recorded: flow.StateStarted},

		"before hetzner create firewalls/k8s#2": {served: 1, seen: true, recorded: flow.StateDone}, // never comes
		"torn journal save firewall/done#2":     {served: 1, seen: true, recorded: flow.StateDone},
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			left := crashAt(t, point)
			if want.torn != 0 && (left.torn < 20 || left.torn > 300) {
				t.Errorf("%d bytes of the torn write are there", left.torn)
			}
			answers := map[effect.Phase]int{}
			for _, l := range left.lines {
				answers[l.Phase]++
			}
			if unanswered := answers[effect.Leaves] > answers[effect.Applied]; unanswered != (strings.HasPrefix(point,
				"before") && want.killed || strings.HasPrefix(point, "applied") || want.torn != 0) {
				t.Errorf("a call has no answer: %v; lines %+v", unanswered, left.lines)
			}
			lines := left.lines
			if left.lines = nil; want.torn != 0 {
				left.torn = -1
			}
			if fmt.Sprint(left) != fmt.Sprint(want) {
				t.Errorf("left %+v, not %+v; lines %+v", left, want, lines)
			}
		})
	}
}

// A process that leads its group takes the group along, any other only itself.
func TestCrashTakesItsOwnGroupAlong(t *testing.T) {
	for _, leads := range []bool{true, false} {
		ready := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ready }))
		state := t.TempDir()
		beside := exec.Command("sleep", "60")
		child := exec.Command(os.Args[0], "-test.run=^TestCrashChild$")
		child.Env = append(os.Environ(), crashChild+"="+server.URL, "SLIPWAY_TEST_STATE="+state, effect.CrashVariable+
			"=before hetzner create firewalls/k8s#1")
		// The child and its neighbour are in one group, of the child or of the neighbour.
		first, second := child, beside
		if !leads {
			first, second = beside, child
		}
		first.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := first.Start(); err != nil {
			t.Fatal(err)
		}
		second.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: first.Process.Pid}
		if err := second.Start(); err != nil {
			t.Fatal(err)
		}
		close(ready)
		if err := child.Wait(); err == nil {
			t.Error("the child was not killed")
		}
		_ = beside.Process.Signal(syscall.SIGTERM)
		err := beside.Wait()
		status, _ := beside.ProcessState.Sys().(syscall.WaitStatus)
		if (status.Signal() == syscall.SIGKILL) != leads {
			t.Errorf("where the child leads (%v) its neighbour ended with %v", leads, err)
		}
		server.Close()
	}
}
