package steps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clusterapi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/pivotcopy"
	"github.com/slipway-k8s/slipway/internal/providers"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// errKilled is how a fake ends where a killed process would.
var errKilled = errors.New("killed")

// pivotWorld is a management cluster with a finished cluster in it, that cluster, and a mover that goes about it as
// clusterctl does and can be made to die after any number of writes.
type pivotWorld struct {
	source, target *kubetest.Server
	hetzner        *hetznertest.Server
	provider       *clustertest.Provider
	files          platform.Files
	b              *Set
	said           []string
	lives          int // writes that the mover has left; negative: no end
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
	w := &pivotWorld{source: kubetest.New("source", kinds...), target: kubetest.New("target", kinds...), hetzner: hetznertest.New(), lives: -1, files: platform.FilesIn(t.TempDir())}
	t.Cleanup(func() {
		w.hetzner.Close()
		for _, s := range []*kubetest.Server{w.source, w.target} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	w.provider = &clustertest.Provider{Kubeconfig: w.source.Kubeconfig(), There: true}
	for file, s := range map[string]*kubetest.Server{platform.ManagementKubeconfig: w.source, platform.Kubeconfig: w.target} {
		if err := w.files.Write(file, s.Kubeconfig()); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config.Defaults()
	cfg.NodesTimeout = config.Duration(2 * time.Second)
	s, err := render.Read(render.VariablesOf(cfg), "")
	if err != nil {
		t.Fatal(err)
	}
	tools := platform.Tools{Hetzner: w.hetzner.Client(hetznertest.Token), Management: w.provider, Files: w.files}
	tools.Clusterctl = func(context.Context, clusterctlconfig.Client) (platform.Clusterctl, error) { return w, nil }
	w.b = newSet(cfg, tools, s)
	clustertest.Define(w.source, kinds)
	clustertest.Define(w.target, kinds)
	w.fill()
	w.target.React = w.reconcile
	return w
}

func owner(kind, apiVersion string, o *unstructured.Unstructured) []any {
	return []any{clustertest.Map{"apiVersion": apiVersion, "kind": kind, "name": o.GetName(), "uid": string(o.GetUID()), "controller": true}}
}

// fill puts the cluster into the source: one machine, and Secrets of every sort.
func (w *pivotWorld) fill() {
	put := func(apiVersion, kind, name string, owners []any, fields clustertest.Map) *unstructured.Unstructured {
		o := kubetest.Object(apiVersion, kind, config.Namespace, name, fields)
		o.SetFinalizers([]string{"example.com/" + strings.ToLower(kind)})
		o.SetAnnotations(map[string]string{"cloned-from": name})
		if owners != nil {
			_ = unstructured.SetNestedSlice(o.Object, owners, "metadata", "ownerReferences")
		}
		w.source.Put(o)
		return w.source.Get(apiVersion, kind, config.Namespace, name)
	}
	labels := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}}
	cluster := put(clustertest.CAPI, "Cluster", "k8s", nil, clustertest.Map{"spec": clustertest.Map{"clusterNetwork": clustertest.Map{"serviceDomain": "x"}}})
	ofCluster := owner("Cluster", clustertest.CAPI, cluster)
	hc := put(clustertest.CAPH, "HetznerCluster", "k8s", ofCluster, clustertest.Map{"spec": clustertest.Map{"region": "nbg1"}})
	tcp := put(clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane", ofCluster, clustertest.Map{"spec": clustertest.Map{"replicas": 1}})
	m := put(clustertest.CAPI, "Machine", "m1", owner("TalosControlPlane", clustertest.CACPPT, tcp), clustertest.Map{"spec": clustertest.Map{"version": "v1.32.2"}})
	put(clustertest.CAPH, "HCloudMachine", "m1", owner("Machine", clustertest.CAPI, m), clustertest.Map{"spec": clustertest.Map{"providerID": "hcloud://100"}})
	put("v1", "Secret", "k8s-ca", ofCluster, clustertest.Map{"data": clustertest.Map{"tls.key": "a2V5"}})
	put("v1", "Secret", "k8s-kubeconfig", nil, clustertest.Map{"metadata": labels, "data": clustertest.Map{"value": "a2V5"}}) // known by name
	put("v1", "Secret", "k8s-talos", nil, clustertest.Map{"metadata": labels, "data": clustertest.Map{"bundle": "a2V5"}})     // owned by nobody
	put("v1", "Secret", config.TokenSecretName, owner("HetznerCluster", clustertest.CAPH, hc), clustertest.Map{"data": clustertest.Map{"hcloud": "a2V5"}})
	put("v1", "Secret", "somebody-elses", nil, clustertest.Map{"data": clustertest.Map{"x": "a2V5"}})
	wellIn(w.source)
	w.hetzner.SetServers(schema.Server{ID: 100, Name: "m1", Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
}

// wellIn gives everything in a cluster the status that controllers would.
func wellIn(s *kubetest.Server) {
	ready := []any{clustertest.Map{"type": "Ready", "status": "True"}, clustertest.Map{"type": "ControlPlaneInitialized", "status": "True"}}
	for _, o := range []struct {
		apiVersion, kind, name string
		status                 clustertest.Map
	}{
		{clustertest.CAPI, "Cluster", "k8s", clustertest.Map{"infrastructureReady": true, "controlPlaneReady": true, "conditions": ready}},
		{clustertest.CAPH, "HetznerCluster", "k8s", clustertest.Map{"ready": true, "conditions": ready}},
		{clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane", clustertest.Map{"initialized": true, "replicas": 1, "readyReplicas": 1}},
		{clustertest.CAPI, "Machine", "m1", clustertest.Map{"phase": "Running", "nodeRef": clustertest.Map{"name": "m1"}}},
		{clustertest.CAPH, "HCloudMachine", "m1", clustertest.Map{"ready": true, "conditions": ready}},
	} {
		s.Change(o.apiVersion, o.kind, config.Namespace, o.name, clustertest.Map{"status": o.status})
	}
}

// reconcile plays the target's controllers: they do nothing while the cluster is paused. It runs with the server locked.
func (w *pivotWorld) reconcile(o *unstructured.Unstructured) {
	if o.GetKind() == "Cluster" && !management.Paused(o) {
		go wellIn(w.target)
	}
}

// Init installs the providers.
func (w *pivotWorld) Init(context.Context, clusterctl.InitOptions) ([]clusterctl.Components, error) {
	for _, p := range providers.Of(w.b.cfg) {
		labels := clustertest.Map{capi.ProviderLabel: p.Label}
		w.target.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.Label, p.Label, clustertest.Map{"metadata": clustertest.Map{"labels": labels}, "version": p.Version}))
		w.target.Put(kubetest.Object("apps/v1", "Deployment", p.Label, "manager", clustertest.Map{
			"metadata": clustertest.Map{"labels": labels}, "spec": clustertest.Map{"replicas": 1}, "status": clustertest.Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
		}))
	}
	return nil, nil
}

// Move does what clusterctl does, write by write: pause, create owners first, mark and delete leaves first, unpause.
func (w *pivotWorld) CertManager(string) (cluster.CertManagerClient, error) {
	return nil, errors.New("no cert-manager was cut off here")
}

func (w *pivotWorld) Move(ctx context.Context, o clusterctl.MoveOptions) error {
	live := func() error {
		if w.lives == 0 {
			return errKilled
		}
		w.lives--
		return ctx.Err()
	}
	c, err := connect.Cluster(w.b.tools, platform.ManagementKubeconfig)
	if err != nil {
		return err
	}
	inv, err := clusterapi.Read(ctx, c, config.Namespace)
	if err != nil {
		return err
	}
	order := []string{"Cluster", "HetznerCluster", "TalosControlPlane", "Machine", "HCloudMachine", "Secret"}
	objects := slices.Clone(inv.Moved)
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int {
		return slices.Index(order, a.GetKind()) - slices.Index(order, b.GetKind())
	})
	for _, source := range objects {
		copied := source.DeepCopy()
		unstructured.RemoveNestedField(copied.Object, "status")
		for _, mutate := range o.ExperimentalResourceMutators {
			if err := mutate(copied); err != nil {
				return err
			}
		}
		if copied.GetDeletionTimestamp() != nil {
			return errors.New("metadata.deletionTimestamp: field is immutable")
		}
		if err := live(); err != nil {
			return err
		}
		w.target.Put(copied)
	}
	slices.Reverse(objects)
	for _, source := range objects {
		if err := live(); err != nil {
			return err
		}
		source.SetAnnotations(map[string]string{clusterapi.DeleteForMove: ""})
		w.source.Put(&source)
		if err := live(); err != nil {
			return err
		}
		w.source.Remove(source.GetAPIVersion(), source.GetKind(), config.Namespace, source.GetName())
	}
	cluster := kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "k8s", nil)
	for _, mutate := range o.ExperimentalResourceMutators {
		if err := mutate(cluster); err != nil {
			return err
		}
	}
	w.target.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s", clustertest.Map{"spec": clustertest.Map{"paused": nil}})
	return nil
}

func (w *pivotWorld) pivot(t *testing.T) (Pivot, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return newPivotStep(w.b).run(ctx, w.say)
}

func inventoryOf(t *testing.T, w *pivotWorld, file string) map[string]*unstructured.Unstructured {
	t.Helper()
	c, err := connect.Cluster(w.b.tools, file)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := clusterapi.Read(t.Context(), c, config.Namespace, config.TokenSecretName)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*unstructured.Unstructured{}
	for _, o := range inv.All() {
		all[clusterapi.KeyOf(&o).String()] = &o
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
		if w.source.Get(o.GetAPIVersion(), o.GetKind(), config.Namespace, o.GetName()) != nil {
			t.Errorf("%s is left at the source", key)
		}
		if is[key] == nil {
			t.Errorf("%s did not arrive", key)
			continue
		}
		for _, d := range clusterapi.Differences(o, is[key]) {
			if d != "metadata.labels["+clusterapi.MoveLabel+"]" {
				t.Errorf("%s: %s", key, d)
			}
		}
	}
	if len(is) != len(was) {
		t.Errorf("%d objects arrived, %d were there", len(is), len(was))
	}
	if c := is["Cluster k8s"]; c == nil || management.Paused(c) {
		t.Error("the cluster is paused or not there")
	}
	if w.source.Get("v1", "Secret", config.Namespace, "somebody-elses") == nil {
		t.Error("a foreign Secret was taken away")
	}
}

func TestPivotMovesEverything(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	out, err := w.pivot(t)
	if err != nil {
		t.Fatal(err)
	}
	w.pivoted(t, was)
	if !slices.Equal(out.Servers, []int64{100}) || out.Cluster == "" {
		t.Errorf("output %+v", out)
	}
	folder := w.files.Path(pivotcopy.Folder)
	// A release that kept the Secrets has left them; the next run removes them.
	old := kubetest.Object("v1", "Secret", config.Namespace, "k8s-ca", clustertest.Map{"data": clustertest.Map{"tls.key": "a2V5"}})
	if err := pivotcopy.In(w.b.tools).Put(old); err != nil {
		t.Fatal(err)
	}
	if err := (&Plan{b: w.b}).RemovePivotSecrets(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != without(was, "Secret")+1 {
		t.Errorf("%d files in the copy, %v", len(entries), err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "secret_") {
			t.Errorf("%s is left in clear text", e.Name())
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the copy: %v %v", info.Mode(), err)
	}
	if v := newPivotStep(w.b).verify(t.Context(), out); v.Answer() != flow.AnswerHolds {
		t.Errorf("verified: %v", v)
	}
	another := out
	another.Cluster = "another UID"
	if v := newPivotStep(w.b).verify(t.Context(), another); v.Answer() != flow.AnswerGone {
		t.Errorf("verified, with another Cluster object: %v", v)
	}
	w.target.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s", clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.ReadoptedAnnotation: "5a5a"}}})
	if v := newPivotStep(w.b).verify(t.Context(), another); v.Answer() != flow.AnswerHolds {
		t.Errorf("verified, with a Cluster object that a readoption has put back: %v", v)
	}
	// Only the record lost: nothing is done a second time.
	writes := len(w.source.Writes()) + len(w.target.Writes())
	if again, err := w.pivot(t); err != nil || again.Cluster != out.Cluster || len(w.source.Writes())+len(w.target.Writes()) != writes {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// TestPivotIsCrashSafe kills the mover after every one of its writes, and once more in the next run.
func TestPivotIsCrashSafe(t *testing.T) {
	for lives := range 28 {
		t.Run(fmt.Sprint(lives), func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			was := inventoryOf(t, w, platform.ManagementKubeconfig)
			for _, w.lives = range []int{lives, lives % 5} {
				if _, err := w.pivot(t); err == nil {
					break
				} else if !errors.Is(err, errKilled) {
					t.Fatalf("the mover died after %d writes: %v", lives, err)
				}
				source, target := w.source.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s"), w.target.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s")
				if source != nil && target != nil && !management.Paused(source) && !management.Paused(target) {
					t.Fatal("both sides are unpaused")
				}
				if passed, err := newPivotStep(w.b).underway(); !passed || err != nil {
					t.Errorf("the steps before it are looked at in the middle of a move (%v)", err)
				}
			}
			w.lives = -1
			if _, err := w.pivot(t); err != nil {
				t.Fatal(err)
			}
			w.pivoted(t, was)
		})
	}
}

// TestPivotSweepsTheSource has a move die between the Cluster object and the Secrets that nobody owns: clusterctl deletes
// them side by side.
func TestPivotSweepsTheSource(t *testing.T) {
	w := newPivotWorld(t)
	secret := w.source.Get("v1", "Secret", config.Namespace, "k8s-talos")
	mustPivot(t, w)
	w.source.Put(secret)
	if err := pivotcopy.In(w.b.tools).Put(secret); err != nil { // until the pivot is over it is in the copy
		t.Fatal(err)
	}
	s, err := connectClusters(t.Context(), w.b.cfg, w.b.tools, w.say)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := settle(t.Context(), w.b.cfg, w.b.tools, w.b.observer, w.say, s); err != nil {
		t.Fatal(err)
	}
	if w.source.Get("v1", "Secret", config.Namespace, "k8s-talos") != nil || w.source.Get("v1", "Secret", config.Namespace, "somebody-elses") == nil {
		t.Error("the Secret that the move left is there still, or a foreign one is not")
	}
}

func TestPivotIsAborted(t *testing.T) {
	for lives := range 10 { // nine objects are created; then they are deleted
		t.Run(fmt.Sprint(lives), func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			was := inventoryOf(t, w, platform.ManagementKubeconfig)
			w.lives = lives
			if _, err := w.pivot(t); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			if err := abortPivot(t.Context(), w.b.cfg, w.b.tools, w.say); err != nil {
				t.Fatal(err)
			}
			if left := inventoryOf(t, w, platform.Kubeconfig); len(left) > 0 {
				t.Errorf("left in the cluster: %v", slices.Collect(maps.Keys(left)))
			}
			is := inventoryOf(t, w, platform.ManagementKubeconfig)
			if len(is) != len(was) || management.Paused(is["Cluster k8s"]) {
				t.Errorf("the management cluster holds %d of %d objects, paused %v", len(is), len(was), management.Paused(is["Cluster k8s"]))
			}
			if passed, err := newPivotStep(w.b).underway(); passed || err != nil {
				t.Errorf("it still counts as begun (%v)", err)
			}
			if err := abortPivot(t.Context(), w.b.cfg, w.b.tools, w.say); !errors.Is(err, errNothingToAbort) {
				t.Errorf("aborted again: %v", err)
			}
			w.lives = -1
			if _, err := w.pivot(t); err != nil {
				t.Fatal(err)
			}
			w.pivoted(t, was)
		})
	}
}

func TestAbortComesTooLate(t *testing.T) {
	for _, lives := range []int{10, 11, 26} {
		w := newPivotWorld(t)
		w.lives = lives
		if _, err := w.pivot(t); lives < 26 && !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if lives == 11 { // one object is gone, and only the target still tells of it
			if err := os.RemoveAll(w.files.Path(pivotcopy.Folder)); err != nil {
				t.Fatal(err)
			}
		}
		writes := len(w.source.Writes()) + len(w.target.Writes())
		err := abortPivot(t.Context(), w.b.cfg, w.b.tools, w.say)
		if err == nil || !strings.Contains(err.Error(), "too late") {
			t.Errorf("after %d writes: %v", lives, err)
		}
		if len(w.source.Writes())+len(w.target.Writes()) != writes {
			t.Errorf("after %d writes: it wrote", lives)
		}
	}
}

func TestPivotGoesOnWithoutItsCopy(t *testing.T) {
	for _, lives := range []int{5, 12, 20} {
		w := newPivotWorld(t)
		was := inventoryOf(t, w, platform.ManagementKubeconfig)
		w.lives = lives
		if _, err := w.pivot(t); !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if err := os.RemoveAll(w.files.Path(pivotcopy.Folder)); err != nil {
			t.Fatal(err)
		}
		w.lives = -1
		if _, err := w.pivot(t); err != nil {
			t.Fatalf("after %d writes: %v", lives, err)
		}
		w.pivoted(t, was)
	}
}

func TestPivotRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(*pivotWorld)
		says string
	}{
		"another cluster in the namespace": {func(w *pivotWorld) {
			w.source.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "other", nil))
		}, "also holds other"},
		"a paused cluster": {func(w *pivotWorld) {
			w.source.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s", clustertest.Map{"spec": clustertest.Map{"paused": true}})
		}, "not by a pivot"},
		"a machine without a node": {func(w *pivotWorld) {
			w.source.Change(clustertest.CAPI, "Machine", config.Namespace, "m1", clustertest.Map{"status": clustertest.Map{"nodeRef": nil}})
		}, "Machine m1 has no node yet"},
		"a control plane that is not ready": {func(w *pivotWorld) {
			w.source.Change(clustertest.CACPPT, "TalosControlPlane", config.Namespace, "k8s-control-plane", clustertest.Map{"status": clustertest.Map{"readyReplicas": 0}})
		}, "1 of 1 replicas, 0 ready"},
		"two managers": {func(w *pivotWorld) {
			w.target.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "k8s", nil))
		}, "both"},
		"no manager": {func(w *pivotWorld) {
			w.source.Remove(clustertest.CAPI, "Cluster", config.Namespace, "k8s")
		}, "neither"},
		"a management cluster that is silent": {func(w *pivotWorld) { w.source.Close() }, "does not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			tt.make(w)
			writes := len(w.target.Writes())
			_, err := w.pivot(t)
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want something about %q", err, tt.says)
			}
			if len(w.source.Writes()) > 0 || len(w.target.Writes()) != writes {
				t.Errorf("it wrote %v %v", w.source.Writes(), w.target.Writes())
			}
			if passed, err := newPivotStep(w.b).underway(); passed || err != nil {
				t.Errorf("a refused pivot counts as begun (%v)", err)
			}
		})
	}
}

func TestPivotNoticesWhatDiffers(t *testing.T) {
	w := newPivotWorld(t)
	was := inventoryOf(t, w, platform.ManagementKubeconfig)
	w.lives = 9 + 2*9 // everything is over, and it died before the end
	w.lives--
	if _, err := w.pivot(t); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.source.Remove(clustertest.CAPI, "Cluster", config.Namespace, "k8s") // its last write
	w.target.Change(clustertest.CAPI, "Machine", config.Namespace, "m1", clustertest.Map{"spec": clustertest.Map{"version": "v1.99.0"}})
	w.target.Change(clustertest.CAPH, "HCloudMachine", config.Namespace, "m1", clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{"cloned-from": nil}}})
	w.target.Remove("v1", "Secret", config.Namespace, "k8s-talos")
	_, err := w.pivot(t)
	if err == nil || !strings.Contains(err.Error(), "Machine m1: spec.version") || strings.Contains(err.Error(), "HCloudMachine") {
		t.Fatalf("did not tell, or did not mend: %v", err)
	}
	if !management.Paused(w.target.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s")) {
		t.Error("unpaused although something differs")
	}
	w.target.Change(clustertest.CAPI, "Machine", config.Namespace, "m1", clustertest.Map{"spec": clustertest.Map{"version": "v1.32.2"}})
	if _, err := w.pivot(t); err != nil {
		t.Fatal(err)
	}
	w.pivoted(t, was)
}

func TestPivotHoldsWhileServersChange(t *testing.T) {
	w := newPivotWorld(t)
	w.target.React = func(o *unstructured.Unstructured) {
		if o.GetKind() == "Cluster" && !management.Paused(o) {
			w.replaceServer(101)
			go wellIn(w.target)
		}
	}
	refuses := func(what, says string) {
		t.Helper()
		if _, err := w.pivot(t); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "pivot --yes") {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.b.tools.Consent = true
	refuses("a server was replaced by a run that was given --yes", "[100] before, [101] now")
	w.b.tools.Consent = false
	refuses("again, and nobody agrees", "[100] before, [101] now")
	w.b.tools.Consent = true
	w.replaceServer(102)
	refuses("another than the one that was agreed to", "[100] before, [102] now")
	for range 2 {
		if out, err := w.pivot(t); err != nil || !slices.Equal(out.Servers, []int64{102}) {
			t.Errorf("as agreed: %+v, %v", out, err)
		}
		w.b.tools.Consent = false // it is written down
	}
}

// TestPivotTakesTheServersOfItsBeginning has one replaced after the copy was taken, while the management cluster is at work still.
func TestPivotTakesTheServersOfItsBeginning(t *testing.T) {
	w := newPivotWorld(t)
	s, err := connectClusters(t.Context(), w.b.cfg, w.b.tools, w.say)
	if err != nil {
		t.Fatal(err)
	}
	st, err := readBothClusters(t.Context(), w.b.cfg, w.say, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ensureCopy(t.Context(), w.b.cfg, w.b.tools, w.say, s, st); err != nil {
		t.Fatal(err)
	}
	w.replaceServer(101)
	if out, err := w.pivot(t); err != nil || !slices.Equal(out.Servers, []int64{101}) {
		t.Errorf("after a run that was killed there: %+v, %v", out, err)
	}
}

func (w *pivotWorld) replaceServer(id int64) {
	w.hetzner.SetServers(schema.Server{ID: id, Name: "m1", Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
}

func TestClean(t *testing.T) {
	for name, tt := range map[string]struct {
		make    func(*testing.T, *pivotWorld)
		says    string // of the refusal; empty: it deletes
		deletes bool
		left    bool
	}{
		"after a pivot": {deletes: true, make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w) }},
		"before one":    {says: "does not hold its own Cluster object", make: func(*testing.T, *pivotWorld) {}},
		"another cluster in it": {says: "elsewhere/other", make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Put(kubetest.Object(clustertest.CAPI, "Cluster", "elsewhere", "other", nil))
		}},
		"a paused cluster": {says: "is paused", make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.target.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s", clustertest.Map{"spec": clustertest.Map{"paused": true}})
		}},
		"silent, all moved": {says: "docker start k8s-mgmt-control-plane", make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w); w.source.Close() }},
		"silent, agreed": {deletes: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Close()
			w.b.tools.Consent = true
		}},
		"silent, its deletion was killed": {deletes: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			killed := errors.New("killed")
			w.b.tools.Management = &deletingProvider{Provider: w.provider, err: killed}
			if _, err := newCleanStep(w.b).run(t.Context(), w.say); !errors.Is(err, killed) {
				t.Fatal(err)
			}
			w.source.Close()
		}},
		"silent, not reconciled": {says: "not reconciled", make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			w.source.Close()
			w.b.tools.Consent = true
			w.target.Change(clustertest.CAPI, "Machine", config.Namespace, "m1", clustertest.Map{"status": clustertest.Map{"nodeRef": nil}})
		}},
		"gone":                 {make: func(t *testing.T, w *pivotWorld) { mustPivot(t, w); w.provider.There = false }},
		"provider cannot tell": {says: "docker is not running", make: func(t *testing.T, w *pivotWorld) { w.provider.ExistsError = errors.New("docker is not running") }},
		"the cluster itself": {left: true, make: func(t *testing.T, w *pivotWorld) {
			mustPivot(t, w)
			if err := w.files.Write(platform.ManagementKubeconfig, w.target.Kubeconfig()); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			tt.make(t, w)
			deleter := &deletingProvider{Provider: w.provider}
			w.b.tools.Management = deleter
			out, err := newCleanStep(w.b).run(t.Context(), w.say)
			switch {
			case tt.says == "" && err != nil:
				t.Fatal(err)
			case tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)):
				t.Errorf("got %v, want something about %q", err, tt.says)
			}
			if deleter.deleted != tt.deletes || out.Left != tt.left {
				t.Errorf("deleted %v, %+v", deleter.deleted, out)
			}
			_, err = os.Stat(w.files.Path(platform.ManagementKubeconfig))
			if gone := errors.Is(err, fs.ErrNotExist); tt.says == "" && !tt.left && !gone {
				t.Errorf("its kubeconfig is still there")
			}
			if begun, _ := filepath.Glob(w.files.Path("clean.*")); len(begun) > 0 {
				t.Errorf("left in the state folder: %v", begun)
			}
		})
	}
}

// TestNoSecondClusterBesideASelfManagedOne loses everything but the kubeconfig, and then that, too: the management cluster
// is gone, as after clean.
func TestNoSecondClusterBesideASelfManagedOne(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(*testing.T, *pivotWorld)
		says string // of the refusal; empty: adopted
	}{
		"kubeconfig at hand": {make: func(*testing.T, *pivotWorld) {}},
		"kubeconfig lost":    {says: "MANAGEMENT_KUBECONFIG", make: func(t *testing.T, w *pivotWorld) { w.forget(t, platform.Kubeconfig) }},
		"it does not answer": {says: "does not answer", make: func(_ *testing.T, w *pivotWorld) { w.target.Close() }},
		"it never managed itself": {says: "does not manage itself", make: func(_ *testing.T, w *pivotWorld) {
			w.target.Remove(clustertest.CAPI, "Cluster", config.Namespace, "k8s")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			mustPivot(t, w)
			w.provider.There = false
			w.forget(t, platform.ManagementKubeconfig)
			tt.make(t, w)
			m, err := newManagementStep(w.b).run(t.Context(), w.say)
			if tt.says == "" && (err != nil || m.UID != "target" || m.Kubeconfig != platform.ManagementKubeconfig) {
				t.Errorf("not adopted: %+v, %v", m, err)
			}
			if tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "m1")) {
				t.Errorf("got %v, want something about %q and the servers", err, tt.says)
			}
			if w.provider.Ensured > 0 {
				t.Error("a management cluster was made")
			}
		})
	}
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
