//go:build unix

package cli

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/ratepeers"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// storeKinds are the kinds of stores, each with what makes one, as the environment of a command names it.
func storeKinds() []struct {
	name string
	make func(*testing.T) []string
} {
	return []struct {
		name string
		make func(*testing.T) []string
	}{
		{"file", func(t *testing.T) []string { return []string{"STATE=file://" + t.TempDir()} }},
		{"s3", func(t *testing.T) []string {
			memory := s3mem.New()
			if err := memory.CreateBucket("states"); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
			t.Cleanup(server.Close)
			return []string{"STATE=s3://states/of/clusters", "STATE_S3_ENDPOINT=" + server.URL, "STATE_S3_REGION=nbg1",
				settings.AccessKeyVariable + "=a", settings.SecretKeyVariable + "=b"}
		}},
		{"k8s", func(t *testing.T) []string {
			server := kubetest.New("another cluster")
			t.Cleanup(server.Close)
			file := filepath.Join(t.TempDir(), "kubeconfig")
			if err := os.WriteFile(file, server.Kubeconfig(), 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"STATE=k8s://default", "STATE_KUBECONFIG=" + file}
		}},
	}
}

// newStore makes a store of a kind, with a key.
func newStore(t *testing.T, made []string) []string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return append(made, settings.StateIdentityVariable+"="+key.String())
}

// storedIn reads what a store, as an environment names it, has of the cluster.
func storedIn(t *testing.T, environment []string, state statedir.Dir) (remotestate.Document, remotestate.Relation) {
	t.Helper()
	cfg, err := loadConfig(arguments{}, settings.Environ(environment))
	if err != nil {
		t.Fatal(err)
	}
	access := remotestate.Access{Config: cfg.Config, Environment: settings.Environ(environment), Hide: &redact.Redactor{}}
	place, err := access.Place(statedir.EnvironmentHetzner, string(state), "")
	if err != nil {
		t.Fatal(err)
	}
	d, _, ok, err := place.Document(t.Context())
	if err != nil || !ok {
		t.Fatalf("%s has no state: %v", place.Store, err)
	}
	is, err := place.Compare(d)
	if err != nil {
		t.Fatal(err)
	}
	return d, is
}

// storeSample is the part of the calls that every run of the tests kills at with a store: one in so many, others each
// day. With a number of schedules it is all.
const storeSample = 4

// TestQuickStores kills the command at calls that change something, in one of the stores each, and has a machine
// continue that has no state folder.
func TestQuickStores(t *testing.T) {
	charts := quickCharts(t)
	undisturbed := quickUndisturbed(t, charts)
	kinds := storeKinds()
	var tried, died counter
	t.Run("killed", func(t *testing.T) {
		for i, key := range undisturbed.keys {
			if os.Getenv(quickSchedules) == "" && (i+quickDay())%storeSample != 0 {
				continue
			}
			kind := kinds[i%len(kinds)]
			place := fmt.Sprintf("%s %s", quickPoints(key)[0], key)
			t.Run(kind.name+" "+place, func(t *testing.T) {
				t.Parallel()
				tried.add()
				q := newQuick(t, charts)
				q.environment = newStore(t, kind.make(t))
				if q.run(t, death{places: place}) == killed {
					died.add()
				} else {
					t.Logf("it did not come to that: %s", q.stderr)
				}
				first, _ := storedIn(t, q.environment, q.state())
				q.folder = "of-another-machine"
				q.finishes(t, undisturbed)
				d, is := storedIn(t, q.environment, q.state())
				if d.Holder != nil || d.Token != first.Token+1 || is != remotestate.Same {
					t.Errorf("at last %v holds the state, with token %d, and the folder is %q", d.Holder, d.Token, is)
				}
				q.folder = "of-a-third"
				if code := q.run(t, death{}); code != ExitDone || len(q.keys(t)) > len(undisturbed.keys)/2 {
					t.Errorf("a third machine ends with %d and makes %d calls: %s", code, len(q.keys(t)), q.stderr)
				}
			})
		}
	})
	if died.n.Load() != tried.n.Load() {
		t.Errorf("of %d points only %d came", tried.n.Load(), died.n.Load())
	}
}

// TestStateFollowsTheCluster has what only looks bring the state folder up to date, and destroy leave its end in the
// store.
func TestStateFollowsTheCluster(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	q.environment = newStore(t, storeKinds()[0].make(t))
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	other := quickRun{dir: q.dir, environment: append([]string{settings.EndpointVariable + "=" + q.Hetzner.URL},
		q.environment...), args: []string{"status", "--state-dir", filepath.Join(q.dir, "looks"),
		"MANAGEMENT_KUBECONFIG=" + filepath.Join(q.dir, "kubeconfig")}}
	other.run(t)
	if _, is := storedIn(t, q.environment, statedir.Dir(filepath.Join(q.dir, "looks"))); is != remotestate.Same {
		t.Errorf("after status, the folder is %q: %s", is, other.stderr)
	}
}

// TestRunsShareTheRateLimit has a run whose state is in a cluster find another run of its Hetzner project there, and
// leave nothing of its own.
func TestRunsShareTheRateLimit(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	server := kubetest.New("another cluster")
	defer server.Close()
	file := filepath.Join(q.dir, "state-kubeconfig")
	if err := os.WriteFile(file, server.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	q.environment = newStore(t, []string{"STATE=k8s://default", "STATE_KUBECONFIG=" + file})
	config, err := clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	other := ratepeers.Join(t.Context(), client.CoordinationV1().Leases("default"), ratepeers.Project(hetznertest.Token),
		"other", "another run", func(string, ...any) {})
	out, err := os.Create(filepath.Join(q.dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	q.stdout = out
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("exit %d: %s", code, q.stderr)
	}
	said, err := os.ReadFile(out.Name())
	if want := "2 runs of this Hetzner project are at work: each takes half of the rate limit"; err != nil ||
		strings.Count(string(said), want) != 1 {
		t.Errorf("it does not say %q once: %v\n%s", want, err, said)
	}
	count := func() (n int) {
		for path := range server.All() {
			if strings.Contains(path, "/leases/") {
				n++
			}
		}
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("after the run there are %d Leases, want that of the other run", n)
	}
	other.Leave(t.Context())
	if n := count(); n != 0 {
		t.Errorf("at last there are %d Leases", n)
	}
}

// TestRunWithoutHome has a whole run need no home folder, as a container has none that can be written to.
func TestRunWithoutHome(t *testing.T) {
	q := newQuick(t, quickCharts(t))
	q.environment = []string{"HOME=/proc/there-is-none"}
	if code := q.run(t, death{}); code != ExitDone || len(q.keys(t)) == 0 {
		t.Errorf("exit %d after %d calls: %s", code, len(q.keys(t)), q.stderr)
	}
}
