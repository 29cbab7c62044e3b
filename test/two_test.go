package test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// installation is a state folder as on another machine: with another management cluster than the others'.
type installation struct {
	t     *testing.T
	bin   string
	dir   string
	state string
	env   []string
}

func newInstallation(t *testing.T, bin, endpoint string) *installation {
	t.Helper()
	management := kubetest.New("management")
	t.Cleanup(func() {
		management.CloseClientConnections()
		management.Close()
	})
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "management")
	if err := os.WriteFile(kubeconfig, management.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &installation{t: t, bin: bin, dir: dir, state: filepath.Join(dir, ".slipway", "k8s"), env: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HCLOUD_TOKEN=" + hetznertest.Token, "HCLOUD_ENDPOINT=" + endpoint,
		"MANAGEMENT_KUBECONFIG=" + kubeconfig,
	}}
}

func (i *installation) cmd(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(i.t.Context(), i.bin, args...)
	cmd.Dir, cmd.Env = i.dir, i.env
	return cmd
}

// run runs the command to its end.
func (i *installation) run(args ...string) (exit int, output string) {
	i.t.Helper()
	cmd := i.cmd(args...)
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		i.t.Error(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// identity is the identity of the state folder.
func (i *installation) identity() string {
	i.t.Helper()
	data, err := os.ReadFile(filepath.Join(i.state, "identity"))
	if err != nil {
		i.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func buildCommand(t *testing.T) string {
	t.Helper()
	bin, err := built(repositoryRoot(t))
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestTwoAtOnce starts the command twice: from two state folders, and on one.
func TestTwoAtOnce(t *testing.T) {
	bin := buildCommand(t)
	t.Run("two state folders", func(t *testing.T) { twoStateFolders(t, bin) })
	t.Run("one state folder", func(t *testing.T) { oneStateFolder(t, bin) })
}

// twoStateFolders bootstraps the same cluster from two state folders at the same time. One gets the name; the other
// ends before it creates anything, and names the owner, also later, until the first releases it.
func twoStateFolders(t *testing.T, bin string) {
	for range 5 {
		cloud := hetznertest.New()
		both := []*installation{newInstallation(t, bin, cloud.URL), newInstallation(t, bin, cloud.URL)}
		exits, outputs := make([]int, 2), make([]string, 2)
		var group sync.WaitGroup
		for n, i := range both {
			group.Go(func() { exits[n], outputs[n] = i.run("reserve") })
		}
		group.Wait()
		if exits[0]+exits[1] != 1 {
			t.Fatalf("exit %d and %d, not one of 0 and one of 1\n%s\n%s", exits[0], exits[1], outputs[0], outputs[1])
		}
		winner, loser := both[exits[0]], both[1-exits[0]]
		said := outputs[1-exits[0]]
		host, err := os.Hostname()
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{winner.identity(), host, "slipway", "--state-dir", "CLUSTER_NAME"} {
			if !strings.Contains(said, word) {
				t.Errorf("the other is not told %q:\n%s", word, said)
			}
		}
		if exit, out := winner.run("reserve"); exit != 0 {
			t.Errorf("the winner again: exit %d\n%s", exit, out)
		}
		if exit, out := loser.run("all", "--yes"); exit != 1 || !strings.Contains(out, winner.identity()) {
			t.Errorf("the other again: exit %d\n%s", exit, out)
		}
		if exit, out := loser.run("reserve", "CLUSTER_NAME=k8s2"); exit != 0 {
			t.Errorf("the other under another name: exit %d\n%s", exit, out)
		}
		groups, written := cloud.PlacementGroups(), slices.DeleteFunc(cloud.Writes(), func(w string) bool {
			method, path, _ := strings.Cut(w, " ")
			return isDoctorsProbe(method, path)
		})
		// Of two that begin at the same moment both may ask for the name; a third request is the other cluster's.
		if len(groups) != 2 || groups[0].Name != "slipway-k8s" || len(written) < 2 || len(written) > 3 {
			t.Errorf("at Hetzner there are %+v, after %v", groups, written)
		}
		cloud.Close()
	}
}

// oneStateFolder stops a run in the middle of a step. A second one on the same state fails immediately and names the
// first; when the first is killed, the next continues.
func oneStateFolder(t *testing.T, bin string) {
	cloud := hetznertest.New()
	defer cloud.Close()
	target, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	held, proxy := make(chan struct{}, 1), httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			select {
			case held <- struct{}{}:
				_, _ = io.Copy(io.Discard, r.Body) // only then the end of the connection is noticed
				<-r.Context().Done()               // until the run is killed
				return
			default:
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	i := newInstallation(t, bin, front.URL)
	first, day := i.cmd("reserve"), time.Now().Format("2006-01-02 ")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Process.Kill() }()
	deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(held) == 0 {
		select {
		case <-deadline.Done():
			t.Fatal("the first run asked for nothing within a minute")
		case <-time.After(10 * time.Millisecond):
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, args := range [][]string{{"reserve"}, {"all", "--yes"}, {"destroy", "--yes"}} {
		exit, out := i.run(args...)
		for _, word := range []string{"process " + strconv.Itoa(first.Process.Pid), host, day} {
			if exit != 1 || !strings.Contains(out, word) {
				t.Errorf("%v while the first is at work: exit %d, and it does not say %q:\n%s", args, exit, word, out)
			}
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("three refusals took %s", took)
	}
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	var holder struct{ PID int }
	data, err := os.ReadFile(filepath.Join(i.state, "journal.lock"))
	if err != nil || json.Unmarshal(data, &holder) != nil || holder.PID != first.Process.Pid {
		t.Errorf("the killed run's lock says %s, %v: it is not stale", data, err)
	}
	if exit, out := i.run("reserve"); exit != 0 || !strings.Contains(out, "was killed while it was running") {
		t.Errorf("after the first was killed: exit %d\n%s", exit, out)
	}
}

// anotherStateFolder bootstraps the same cluster in the same simulated project from another state folder, with another
// management cluster: nothing is created, and nothing of the first is changed.
func anotherStateFolder(t *testing.T, c *command) {
	var info struct{ HetznerEndpoint, Token string }
	c.labGet("/v1/info", &info)
	if err := c.labCall(http.MethodPut, "/v1/management/elsewhere", nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.labCall(http.MethodDelete, "/v1/management/elsewhere", nil); err != nil {
			t.Error(err)
		}
	}()
	var made struct{ Kubeconfig string }
	c.labGet("/v1/management/elsewhere", &made)
	kubeconfig := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(kubeconfig, []byte(made.Kubeconfig), 0o600); err != nil || made.Kubeconfig == "" {
		t.Fatalf("the kubeconfig of another management cluster: %q, %v", made.Kubeconfig, err)
	}
	before := writes(t, c)
	other := *c
	other.state = filepath.Join(t.TempDir(), "state")
	other.env = []string{"HCLOUD_TOKEN=" + info.Token, "HCLOUD_ENDPOINT=" + info.HetznerEndpoint,
		"MANAGEMENT_KUBECONFIG=" + kubeconfig}
	o := other.run(nil, "all", "--yes")
	identity, err := os.ReadFile(filepath.Join(c.state, "identity"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{strings.TrimSpace(string(identity)), "network k8s", "load balancer k8s-control-plane",
		"server k8s-control-plane"} {
		if o.exit != 1 || !strings.Contains(o.output, word) {
			t.Errorf("exit %d, and it does not say %q\n%s", o.exit, word, o.output)
		}
	}
	if wrote := added(before, writes(t, c)); len(wrote) > 0 {
		t.Errorf("it wrote: %v", wrote)
	}
	if again := c.run(nil, "--lab"); again.exit != 0 || len(again.steps("step-done")) > 0 {
		t.Errorf("the first afterwards: exit %d, ran %v\n%s", again.exit, again.steps("step-done"), again.output)
	}
}
