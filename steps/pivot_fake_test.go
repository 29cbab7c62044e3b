package steps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// errKilled is how a fake ends where a killed process would.
var errKilled = errors.New("killed")

// pivotWorld is a management cluster with a finished cluster in it, and that cluster. A run can be made to die after
// any number of writes.
type pivotWorld struct {
	source, target *kubetest.Server
	hetzner        *hetznertest.Server
	provider       *clustertest.Provider
	files          platform.Files
	b              *Set
	said           []string

	mu    sync.Mutex
	lives int    // writes to both clusters that a run has left; negative: no end
	kill  func() // ends the run
}

func (w *pivotWorld) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func newPivotWorld(t *testing.T) *pivotWorld {
	t.Helper()
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	kinds := []kubetest.Resource{
		clustertest.Resource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1"),
		clustertest.Resource("Machine", "machines", "cluster.x-k8s.io", "v1beta1"),
		clustertest.Resource("HetznerCluster", "hetznerclusters", infrastructure, "v1beta1"),
		clustertest.Resource("HCloudMachine", "hcloudmachines", infrastructure, "v1beta1"),
		clustertest.Resource("TalosControlPlane", "taloscontrolplanes", "controlplane.cluster.x-k8s.io", "v1alpha3"),
		clustertest.Resource("Provider", "providers", "clusterctl.cluster.x-k8s.io", "v1alpha3"),
	}
	w := &pivotWorld{source: kubetest.New("source", kinds...), target: kubetest.New("target", kinds...),
		hetzner: hetznertest.New(), lives: -1, files: platform.FilesIn(t.TempDir())}
	t.Cleanup(func() {
		w.hetzner.Close()
		for _, s := range []*kubetest.Server{w.source, w.target} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	w.provider = &clustertest.Provider{Kubeconfig: w.source.Kubeconfig(), There: true}
	for file, s := range map[string]*kubetest.Server{platform.ManagementKubeconfig: w.source,
		platform.Kubeconfig: w.target} {
		if err := w.files.Write(file, s.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Defaults()
	cfg.NodesTimeout = config.Duration(time.Minute) // a busy machine is slow
	s, err := render.Read(render.VariablesOf(cfg), "")
	if err != nil {
		t.Fatal(err)
	}
	tools := platform.Tools{Hetzner: w.hetzner.Client(nil), Management: w.provider, Files: w.files}
	tools.Clusterctl = func(context.Context, clusterctlconfig.Client, string) (platform.Clusterctl, error) {
		return w, nil
	}
	w.b = newSet(cfg, tools, s)
	clustertest.Define(w.source, kinds)
	clustertest.Define(w.target, kinds)
	w.fill()
	w.target.React = w.reconcile
	w.source.Fail, w.target.Fail = w.spend, w.spend
	return w
}

func owner(kind, apiVersion string, o *unstructured.Unstructured) []any {
	return []any{clustertest.Map{"apiVersion": apiVersion, "kind": kind, "name": o.GetName(), "uid": string(o.GetUID()),
		"controller": true}}
}

// fill puts the cluster into the source: one machine, and Secrets of every sort.
func (w *pivotWorld) fill() {
	put := func(apiVersion, kind, name string, owners []any, fields clustertest.Map) *unstructured.Unstructured {
		o := kubetest.Object(apiVersion, kind, config.DefaultNamespace, name, fields)
		o.SetFinalizers([]string{"example.com/" + strings.ToLower(kind)})
		o.SetAnnotations(map[string]string{"cloned-from": name})
		if owners != nil {
			_ = unstructured.SetNestedSlice(o.Object, owners, "metadata", "ownerReferences")
		}
		w.source.Put(o)
		return w.source.Get(apiVersion, kind, config.DefaultNamespace, name)
	}
	labels := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}}
	cluster := put(clustertest.CAPI, "Cluster", "k8s", nil,
		clustertest.Map{"spec": clustertest.Map{"clusterNetwork": clustertest.Map{"serviceDomain": "x"}}})
	ofCluster := owner("Cluster", clustertest.CAPI, cluster)
	hc := put(clustertest.CAPH, "HetznerCluster", "k8s", ofCluster,
		clustertest.Map{"spec": clustertest.Map{"region": "nbg1"}})
	tcp := put(clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane", ofCluster,
		clustertest.Map{"spec": clustertest.Map{"replicas": 1}})
	m := put(clustertest.CAPI, "Machine", "m1", owner("TalosControlPlane", clustertest.CACPPT, tcp),
		clustertest.Map{"spec": clustertest.Map{"version": "v1.35.4"}})
	put(clustertest.CAPH, "HCloudMachine", "m1", owner("Machine", clustertest.CAPI, m),
		clustertest.Map{"spec": clustertest.Map{"providerID": "hcloud://100"}})
	put("v1", "Secret", "k8s-ca", ofCluster, clustertest.Map{"data": clustertest.Map{"tls.key": "a2V5"}})
	// known by name
	put("v1", "Secret", "k8s-kubeconfig", nil,
		clustertest.Map{"metadata": labels, "data": clustertest.Map{"value": "a2V5"}})
	// owned by nobody
	put("v1", "Secret", "k8s-talos", nil, clustertest.Map{"metadata": labels, "data": clustertest.Map{"bundle": "a2V5"}})
	put("v1", "Secret", config.TokenSecretName, owner("HetznerCluster", clustertest.CAPH, hc),
		clustertest.Map{"data": clustertest.Map{"hcloud": "a2V5"}})
	put("v1", "Secret", "somebody-elses", nil, clustertest.Map{"data": clustertest.Map{"x": "a2V5"}})
	wellIn(w.source)
	w.hetzner.SetServers(schema.Server{ID: 100, Name: "m1", Status: "running",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
}

// wellIn gives everything in a cluster the status that controllers would.
func wellIn(s *kubetest.Server) {
	ready := []any{clustertest.Map{"type": "Ready", "status": "True"},
		clustertest.Map{"type": "ControlPlaneInitialized", "status": "True"}}
	for _, o := range []struct {
		apiVersion, kind, name string
		status                 clustertest.Map
	}{
		{clustertest.CAPI, "Cluster", "k8s",
			clustertest.Map{"infrastructureReady": true, "controlPlaneReady": true, "conditions": ready}},
		{clustertest.CAPH, "HetznerCluster", "k8s", clustertest.Map{"ready": true, "conditions": ready}},
		{clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane",
			clustertest.Map{"initialized": true, "replicas": 1, "readyReplicas": 1}},
		{clustertest.CAPI, "Machine", "m1", clustertest.Map{"phase": "Running", "nodeRef": clustertest.Map{"name": "m1"}}},
		{clustertest.CAPH, "HCloudMachine", "m1", clustertest.Map{"ready": true, "conditions": ready}},
	} {
		s.Change(o.apiVersion, o.kind, config.DefaultNamespace, o.name, clustertest.Map{"status": o.status})
	}
}

// reconcile plays the target's controllers: they do nothing while the cluster is paused. It runs with the server
// locked.
func (w *pivotWorld) reconcile(o *unstructured.Unstructured) {
	if o.GetKind() == "Cluster" && !connect.Paused(o) {
		go wellIn(w.target)
	}
}

// Init installs the providers.
func (w *pivotWorld) Init(context.Context, clusterctl.InitOptions) ([]clusterctl.Components, error) {
	for _, p := range capi.ConfiguredProviders(w.b.cfg) {
		labels := clustertest.Map{capi.ProviderLabel: p.Label}
		w.target.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.Label, p.Label,
			clustertest.Map{"metadata": clustertest.Map{"labels": labels}, "version": p.Version}))
		w.target.Put(kubetest.Object("apps/v1", "Deployment", p.Label, "manager", clustertest.Map{
			"metadata": clustertest.Map{"labels": labels}, "spec": clustertest.Map{"replicas": 1},
			"status": clustertest.Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
		}))
	}
	return nil, nil
}

func (w *pivotWorld) ApplyUpgrade(context.Context, clusterctl.ApplyUpgradeOptions) error {
	return errors.New("a pivot does not upgrade")
}

func (w *pivotWorld) CoreContract(context.Context, string) (string, error) {
	return "", errors.New("a pivot does not upgrade")
}

func (w *pivotWorld) CertManager(string) (cluster.CertManagerClient, error) {
	return nil, errors.New("no cert-manager was cut off here")
}

// spend takes a write from the lives of the process that asks for it, and ends the process where it has none left.
func (w *pivotWorld) spend(r *http.Request) (code int, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.Method == http.MethodGet || w.lives < 0:
		return 0, ""
	case w.lives == 0:
		w.lives = -1 // of the next run
		w.kill()
		return http.StatusServiceUnavailable, "killed"
	}
	w.lives--
	return 0, ""
}

func (w *pivotWorld) pivot(t *testing.T) (Pivot, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	killed := false
	w.kill = func() { killed = true; cancel() }
	out, err := w.b.runPivot(ctx, w.say)
	if err != nil && killed {
		return out, errKilled
	}
	return out, err
}

func inventoryOf(t *testing.T, w *pivotWorld, file string) map[string]*unstructured.Unstructured {
	t.Helper()
	c, err := connect.Cluster(w.b.tools, file)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := capi.ReadInventory(t.Context(), c, config.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, o := range inv.All() {
		all[capi.ObjectKeyOf(&o).String()] = &o
	}
	return all
}

// pivoted asserts that everything is in the target as it was in the source, unpaused, and nothing in the source.
func (w *pivotWorld) pivoted(t *testing.T, was map[string]*unstructured.Unstructured) {
	t.Helper()
	if left := inventoryOf(t, w, platform.ManagementKubeconfig); len(left) > 0 {
		t.Errorf("left at the source: %v", slices.Collect(maps.Keys(left)))
	}
	is := inventoryOf(t, w, platform.Kubeconfig)
	for key, o := range was {
		// Without the Cluster object nothing tells any more that it belongs to the cluster, so it is asked for by name.
		if w.source.Get(o.GetAPIVersion(), o.GetKind(), config.DefaultNamespace, o.GetName()) != nil {
			t.Errorf("%s is left at the source", key)
		}
		if is[key] == nil {
			t.Errorf("%s did not arrive", key)
			continue
		}
		for _, d := range capi.Differences(o, is[key]) {
			if d != "metadata.labels["+capi.MoveLabel+"]" {
				t.Errorf("%s: %s", key, d)
			}
		}
	}
	if len(is) != len(was) {
		t.Errorf("%d objects arrived, %d were there", len(is), len(was))
	}
	if c := is["Cluster k8s"]; c == nil || connect.Paused(c) {
		t.Error("the cluster is paused or not there")
	}
	if w.source.Get("v1", "Secret", config.DefaultNamespace, "somebody-elses") == nil {
		t.Error("a foreign Secret was taken away")
	}
}

func (w *pivotWorld) replaceServer(id int64) {
	w.hetzner.SetServers(schema.Server{ID: id, Name: "m1", Status: "running",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
}

func (w *pivotWorld) forget(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(w.files.Path(file)); err != nil {
		t.Fatal(err)
	}
}

func mustPivot(t *testing.T, w *pivotWorld) {
	t.Helper()
	if _, err := w.pivot(t); err != nil {
		t.Fatal(err)
	}
}

// deletingProvider tells whether it was asked to delete.
type deletingProvider struct {
	*clustertest.Provider
	deleted bool
	err     error
}

func (p *deletingProvider) Delete(context.Context, string) error { p.deleted = true; return p.err }

// without counts the objects of an inventory that are not of a kind.
func without(inventory map[string]*unstructured.Unstructured, kind string) (n int) {
	for _, o := range inventory {
		if o.GetKind() != kind {
			n++
		}
	}
	return n
}
