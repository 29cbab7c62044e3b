package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

// smallProject has a load balancer of cluster k8s, one of cluster demo, and one of nobody's.
func smallProject(t *testing.T) (s *hetznertest.Server, environment string) {
	t.Helper()
	s = hetznertest.NewEmpty()
	t.Cleanup(s.Close)
	for id, labels := range map[int64]map[string]string{1: {"caph-cluster-k8s": "owned"},
		2: {"caph-cluster-demo": "owned"}, 3: nil} {
		s.Put("load_balancers", id, schema.LoadBalancer{
			Name: "lb", Labels: labels, Location: schema.Location{Name: "nbg1"},
			LoadBalancerType: schema.LoadBalancerType{Name: "lb11"},
		})
	}
	return s, "HCLOUD_ENDPOINT=" + s.URL + " HCLOUD_TOKEN=" + hetznertest.Token
}

func TestLeftoversOfEveryCluster(t *testing.T) {
	s, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	r := execute(t, t.Context(), dir, environment, "leftovers")
	for _, want := range []string{"caph-cluster-k8s=owned", "caph-cluster-demo=owned", "6.00 EUR",
		"together 12.00 EUR a month"} {
		if r.code != ExitDone || !strings.Contains(r.stdout, want) {
			t.Errorf("%+v does not say %s", r, want)
		}
	}
	var list struct {
		Resources []struct{ Cluster string }
		Monthly   struct{ Monthly float64 }
	}
	r = execute(t, t.Context(), dir, environment, "leftovers", "--output", "json")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Resources) != 2 ||
		list.Monthly.Monthly != 12 {
		t.Errorf("%v: %s", err, r.stdout)
	}
	if writes := s.Writes(); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("it left %v", entries)
	}
}

func TestDestroyByCommand(t *testing.T) {
	s, environment := smallProject(t)
	dir := t.TempDir()
	t.Chdir(dir)
	state := filepath.Join(dir, "state")

	// Without a person and without --yes nothing goes.
	r := execute(t, t.Context(), dir, environment, "destroy", "--state-dir", state)
	if r.code != ExitUsage || !strings.Contains(r.stderr, "--yes") {
		t.Errorf("without a terminal: %+v", r)
	}
	r = execute(t, t.Context(), dir, environment, "destroy", "--dry-run", "--state-dir", state)
	if r.code != ExitDone || !strings.Contains(r.stdout, "caph-cluster-k8s=owned") || strings.Contains(r.stdout, "demo") {
		t.Errorf("dry run: %+v", r)
	}
	if writes := s.Writes(); len(writes) > 0 {
		t.Errorf("it wrote %v", writes)
	}

	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"journal.json", "kubeconfig", "talosconfig"} {
		if err := os.WriteFile(filepath.Join(state, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = execute(t, t.Context(), dir, environment, "destroy", "--yes", "--state-dir", state)
	if left := s.Left(); r.code != ExitDone || !slices.Equal(left, []string{"load_balancers/2", "load_balancers/3"}) {
		t.Errorf("%+v; left %v", r, left)
	}
	if kept, _ := filepath.Glob(filepath.Join(state, "journal.destroyed-*.json")); len(kept) != 1 {
		t.Errorf("the journal's record: %v", kept)
	}
	for _, name := range []string{"journal.json", "kubeconfig", "talosconfig"} {
		if _, err := os.Stat(filepath.Join(state, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

func TestOperationsStandAlone(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range []string{"destroy apply", "leftovers status", "replace-machine", "replace-machine a b",
		"apply replace-machine", "leftovers --images"} {
		if r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x", strings.Fields(args)...); r.code != ExitUsage {
			t.Errorf("%s: %+v", args, r)
		}
	}
	// The state of a rehearsal is none of a real cluster.
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "world"), []byte("lab\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := execute(t, t.Context(), dir, "HCLOUD_TOKEN=x", "destroy", "--yes", "--state-dir", state)
	if r.code != ExitUsage || !strings.Contains(r.stderr, "add --lab") {
		t.Errorf("%+v", r)
	}
}
