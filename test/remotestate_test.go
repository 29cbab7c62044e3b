package test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// TestRemoteState has two machines work on one cluster, with its state in an S3 store. The first is frozen for longer
// than its lease; the second takes over and ends the bootstrap; the first, awake again, stops and changes nothing more.
// Then an attacker who can write the store replaces the state, in vain, and the state moves into Secrets of a cluster.
func TestRemoteState(t *testing.T) {
	memory := s3mem.New()
	if err := memory.CreateBucket("states"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"STATE=s3://states/clusters", "STATE_S3_ENDPOINT=" + server.URL, "STATE_S3_REGION=nbg1",
		"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", "STATE_IDENTITY=" + key.String(), "STATE_LEASE=12s"}
	first, second := newCommand(t), newCommand(t)
	first.env, second.env = env, env
	// Both machines see one Hetzner: that of the first one's lab.
	for _, err := range []error{os.MkdirAll(second.state, 0o700), os.MkdirAll(filepath.Join(first.state, "lab"), 0o700),
		os.Symlink(filepath.Join(first.state, "lab"), filepath.Join(second.state, "lab"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"bootstrap", "--lab", "CONTROL_PLANE_REPLICAS=1"}
	frozen, ended := make(chan *os.Process, 1), make(chan outcome, 1)
	go func() {
		stopped := false
		ended <- first.run(func(e event, p *os.Process) {
			if !stopped && e.Kind == "step-started" && e.Step == "wait-cp" {
				stopped = p.Signal(syscall.SIGSTOP) == nil
				frozen <- p
			}
		}, args...)
	}()
	var process *os.Process
	select {
	case process = <-frozen:
	case o := <-ended:
		t.Fatalf("the first run was not frozen: exit %d\n%s", o.exit, o.end())
	}
	o := second.run(nil, args...)
	for _, says := range []string{"is held by process", "it has given no sign for 12s"} {
		if o.exit != 0 || !strings.Contains(o.output, says) {
			t.Errorf("the second run: exit %d, want 0 and %q\n%s", o.exit, says, o.output)
		}
	}
	if again := o.steps("step-started"); slices.Contains(again, "apply") || slices.Contains(again, "capi-init") {
		t.Errorf("the second run has done again what the first had done: %v", again)
	}
	awake := time.Now()
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; o.exit != 1 || !strings.Contains(o.output, "it has lost the lease") {
		t.Errorf("the first run, awake again: exit %d\n%s", o.exit, o.end())
	}
	if late := changesSince(t, first.state, awake); len(late) > 0 {
		t.Errorf("the first run has changed without its lease: %v", late)
	}

	refusesForgedStates(t, second, server.URL+"/states/clusters/lab/k8s/state", key, args)

	kubeconfig := filepath.Join(second.state, "kubeconfig")
	secrets := []string{"STATE=k8s://default", "STATE_KUBECONFIG=" + kubeconfig, "STATE_IDENTITY=" + key.String()}
	second.env = secrets
	if out, err := second.exec(t.Context(), "state", "push", "--lab"); err != nil {
		t.Fatalf("state push: %v\n%s", err, out)
	}
	first.env = append(slices.Clone(secrets[:1]), "STATE_KUBECONFIG="+kubeconfig, secrets[2])
	if out, err := first.exec(t.Context(), "state", "pull", "--lab", "--force"); err != nil {
		t.Fatalf("state pull: %v\n%s", err, out)
	}
	if o := first.run(nil, args...); o.exit != 0 || len(o.steps("step-started")) > 0 {
		t.Errorf("with the state in a cluster: exit %d, steps %v ran\n%s", o.exit, o.steps("step-started"), o.output)
	}
	out, err := second.exec(t.Context(), "state", "show", "--lab", "--output", "json")
	var shown struct{ Holder, FolderIs any }
	if err != nil || json.Unmarshal([]byte(out), &shown) != nil || shown.Holder != nil {
		t.Errorf("state show: %v\n%s", err, out)
	}
	for _, c := range []*command{first, second} {
		files, err := filesUnder(c.state, "lab")
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range files {
			if bytes.Contains(data, []byte(key.String())) {
				t.Errorf("the key to the state is in %s", path)
			}
		}
	}
}

// changesSince are the calls of a state folder's runs that began after a time and change something outside of it.
func changesSince(t *testing.T, state string, since time.Time) (late []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(state, "runs", "*", "effects.jsonl"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no run has recorded what it changed: %v", err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var l struct {
				Time                       time.Time
				World, Verb, Object, Phase string
			}
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			if l.Time.After(since) && l.Phase == "before" && l.World != "file" && l.World != "journal" {
				late = append(late, l.World+" "+l.Verb+" "+l.Object)
			}
		}
	}
	return late
}
