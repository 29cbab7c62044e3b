//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// twoClusters is a project with clusters k8s and other, one management cluster for both, and the state folder of k8s.
type twoClusters struct {
	project    *hetznertest.Server
	management *kubetest.Server
	dir        string
	state      statedir.Dir
}

func newTwoClusters(t *testing.T) *twoClusters {
	t.Helper()
	c := &twoClusters{project: hetznertest.NewEmpty(), dir: t.TempDir()}
	c.state = statedir.Dir(filepath.Join(c.dir, "state"))
	t.Cleanup(c.project.Close)
	kinds := []kubetest.Resource{
		{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster", Plural: "clusters"},
		{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "HCloudMachine", Plural: "hcloudmachines"},
	}
	c.management = kubetest.New("management", kinds...)
	for _, k := range kinds {
		c.management.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", k.Plural+"."+k.Group,
			map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"clusterctl.cluster.x-k8s.io": ""}},
				"spec": map[string]any{
					"group": k.Group, "scope": "Namespaced", "names": map[string]any{"kind": k.Kind, "plural": k.Plural},
					"versions": []any{map[string]any{"name": k.Version, "served": true, "storage": true}},
				},
			}))
	}
	workload := kubetest.New("workload")
	for _, s := range []*kubetest.Server{c.management, workload} {
		t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	}
	nbg1 := schema.Location{Name: "nbg1"}
	for i, name := range []string{"k8s", "other"} {
		id := 100 * int64(i)
		labels := map[string]string{"caph-cluster-" + name: "owned"}
		c.project.Put("servers", id+1, schema.Server{Name: name + "-a", Labels: labels, Location: nbg1,
			ServerType: schema.ServerType{Name: "cx33"}})
		c.project.Put("networks", id+2, schema.Network{Name: name, Labels: labels, IPRange: "10.10.0.0/16"})
		c.project.Put("load_balancers", id+3, schema.LoadBalancer{
			Name: name + "-kube-apiserver", Labels: labels, Location: nbg1,
			LoadBalancerType: schema.LoadBalancerType{Name: "lb11"},
		})
		c.project.Put("placement_groups", id+4, schema.PlacementGroup{
			Name: "slipway-" + name, Labels: map[string]string{"slipway-cluster": name,
				"slipway-reserved-by": "0123456789abcdef"},
		})
		c.management.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, name, nil))
	}
	for name, data := range map[string][]byte{
		statedir.EnvironmentFile: []byte(statedir.EnvironmentHetzner + "\n"), "identity": []byte("0123456789abcdef\n"),
		"talosconfig":           []byte("k8s's"),
		"management.kubeconfig": c.management.Kubeconfig(), "kubeconfig": workload.Kubeconfig(),
		"given": c.management.Kubeconfig(),
	} {
		if err := c.state.Files().Write(name, data); err != nil {
			t.Fatal(err)
		}
	}
	made := ownership.Management{Provider: "kubeconfig", Name: "k8s-mgmt", UID: "management"}
	if err := (ownership.Record{Cluster: "k8s", Reservation: 4, Management: &made}).Write(c.state.Files()); err != nil {
		t.Fatal(err)
	}
	err := c.state.Journal().Save(t.Context(), flow.Snapshot{Format: flow.Format, Graph: "slipway",
		Steps: map[string]flow.Record{
			"apply": {State: flow.StateDone, Output: json.RawMessage(`{"name":"k8s"}`)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *twoClusters) destroy(t *testing.T, cluster string, d death) (code int, stderr string) {
	t.Helper()
	r := quickRun{
		dir: c.dir, death: d, environment: []string{settings.EndpointVariable + "=" + c.project.URL},
		args: []string{"destroy", "--yes", "--state-dir", string(c.state), "CLUSTER_NAME=" + cluster,
			"MANAGEMENT_KUBECONFIG=" + c.state.Path("given")},
	}
	code = r.run(t)
	return code, r.stderr
}

// otherIsWhole fails where anything of cluster other is gone.
func (c *twoClusters) otherIsWhole(t *testing.T) {
	t.Helper()
	for _, want := range []string{"servers/101", "networks/102", "load_balancers/103", "placement_groups/104"} {
		if !slices.Contains(c.project.Left(), want) {
			t.Errorf("%s of cluster other is gone", want)
		}
	}
	if c.management.Get("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "other") == nil {
		t.Error("the Cluster object of cluster other is gone")
	}
}

// TestDestroyKilledInASharedProject kills a destroy of cluster k8s before, in and after every call that changes
// something. However far it came, the folder cannot be used to destroy cluster other, nothing of cluster other goes,
// and the next run finishes.
func TestDestroyKilledInASharedProject(t *testing.T) {
	calm := newTwoClusters(t)
	if code, stderr := calm.destroy(t, "other", death{}); code != ExitUsage ||
		!strings.Contains(stderr, "this folder belongs to cluster k8s") {
		t.Fatalf("destroy of the other cluster: %d: %s", code, stderr)
	}
	if code, stderr := calm.destroy(t, "k8s", death{}); code != ExitDone {
		t.Fatalf("destroy: %d: %s", code, stderr)
	}
	calm.finished(t)
	keys := effectKeys(t, calm.state)
	if len(keys) < 10 {
		t.Fatalf("only %d calls: %q", len(keys), keys)
	}
	var tried, died counter
	places := 0
	t.Run("killed", func(t *testing.T) {
		var killing sync.WaitGroup // not t.Parallel: they mostly wait for the next look at what is left
		defer killing.Wait()
		for _, key := range keys {
			for _, point := range slices.DeleteFunc(effect.Points(), ofTheJournal) {
				if places++; leftOut(places) {
					continue
				}
				place := fmt.Sprintf("%s %s", point, key)
				killing.Go(func() {
					t.Run(place, func(t *testing.T) {
						tried.add()
						if killAndFinish(t, place) {
							died.add()
						}
					})
				})
			}
		}
	})
	t.Logf("%d calls, killed at %d of %d points", len(keys), died.n.Load(), tried.n.Load())
	if died.n.Load() != tried.n.Load() {
		t.Errorf("of %d points only %d came", tried.n.Load(), died.n.Load())
	}
}

// ofTheJournal are the points in a write of the journal, of which a destroy has none.
func ofTheJournal(p effect.Point) bool { return p == effect.PointTorn || p == effect.PointSaved }

// killAndFinish kills a destroy of k8s at a place, tries to destroy other with k8s's folder, and lets the next destroy
// of k8s finish.
func killAndFinish(t *testing.T, place string) (died bool) {
	t.Helper()
	c := newTwoClusters(t)
	code, stderr := c.destroy(t, "k8s", death{places: place})
	if code != killed {
		t.Logf("it did not come to that: %d: %s", code, stderr)
	}
	if record, err := ownership.Read(c.state.Files()); err != nil || record != nil {
		before, left := treeDigest(t, string(c.state)), c.project.Left()
		code, stderr := c.destroy(t, "other", death{})
		if code != ExitUsage || strings.Contains(stderr, "gone") {
			t.Errorf("destroy of the other cluster: %d: %s", code, stderr)
		}
		if treeDigest(t, string(c.state)) != before || !slices.Equal(c.project.Left(), left) {
			t.Error("the refused destroy has changed something")
		}
	}
	if code, stderr := c.destroy(t, "k8s", death{}); code != ExitDone {
		t.Fatalf("the next run: %d: %s", code, stderr)
	}
	c.finished(t)
	return code == killed
}

// finished checks that k8s is gone, its files too, and nothing else.
func (c *twoClusters) finished(t *testing.T) {
	t.Helper()
	c.otherIsWhole(t)
	if c.management.Get("cluster.x-k8s.io/v1beta1", "Cluster", config.DefaultNamespace, "k8s") != nil {
		t.Error("the Cluster object of k8s is left")
	}
	if left := c.project.Left(); len(left) != 4 {
		t.Errorf("left of both clusters: %v", left)
	}
	for _, name := range []string{ownership.File, "kubeconfig", "talosconfig", "management.kubeconfig"} {
		if lab.Exists(c.state.Path(name)) {
			t.Errorf("%s is left in the state folder", name)
		}
	}
	if err := c.state.CheckOwner(t.Context(), statedir.Owner{Cluster: "other"}); err != nil {
		t.Errorf("the folder is not free: %v", err)
	}
}
