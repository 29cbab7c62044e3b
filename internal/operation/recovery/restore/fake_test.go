package restore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// prepare makes the management cluster of three servers that are up.
func (w *restoreWorld) prepare(t *testing.T) (steps.Management, steps.Cluster) {
	t.Helper()
	if err := w.r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	w.Management.React = nil
	for i := range 3 {
		name := fmt.Sprintf("k8s-control-plane-%d", i)
		w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, map[string]any{
			"metadata": map[string]any{"labels": map[string]any{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}},
			"spec":     map[string]any{"infrastructureRef": map[string]any{"name": name}},
			"status": map[string]any{"addresses": []any{map[string]any{"type": "InternalIP",
				"address": fmt.Sprintf("127.0.1.%d", i)}}},
		}))
	}
	secret := func(name, key string, value []byte) {
		w.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, name,
			map[string]any{"data": map[string]any{key: value}}))
	}
	secret("k8s-kubeconfig", "value", w.Workload.Kubeconfig())
	secret("k8s-talosconfig", "talosconfig", w.Talosconfig)
	return steps.Management{Kubeconfig: platform.ManagementKubeconfig},
		steps.Cluster{Name: "k8s", ControlPlane: "k8s-control-plane",
			Replicas: 3}
}

// restored puts what a restored etcd knows into the workload cluster.
func (w *restoreWorld) restored(t *testing.T, annotations map[string]any) steps.Kubeconfig {
	t.Helper()
	if err := w.r.tools.Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	w.Workload.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	labels := map[string]any{capi.ProviderLabel: "infrastructure-hetzner"}
	w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "caph-system", "caph",
		map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"replicas": 1}}))
	w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "shop", "web",
		map[string]any{"spec": map[string]any{"replicas": 2}}))
	w.Workload.Put(kubetest.Object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "caph",
		map[string]any{"metadata": map[string]any{"labels": labels}}))
	w.Workload.Put(kubetest.Object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "shop", nil))
	w.Workload.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		map[string]any{"metadata": map[string]any{"finalizers": []any{"hold"}, "annotations": annotations}}))
	w.Workload.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", "caph-system",
		"infrastructure-hetzner", nil))
	for name, node := range map[string]string{"k8s-control-plane-0": "k8s-control-plane-0", "lost": "lost", "waits": "",
		"dedicated": "dedicated"} {
		w.Workload.Put(kubetest.Object("v1", "Pod", "shop", name, map[string]any{"spec": map[string]any{"nodeName": node}}))
	}
	for name, id := range map[string]string{"k8s-control-plane-0": "", "lost": "hcloud://99", "dedicated": "hrobot://7"} {
		w.Workload.Put(kubetest.Object("v1", "Node", "", name, map[string]any{"spec": map[string]any{"providerID": id}}))
	}
	for _, key := range []string{config.DefaultNamespace, "team"} { // clusters that this one manages besides itself
		w.Workload.Put(kubetest.Object(clustertest.CAPI, "Cluster", key, "shop",
			map[string]any{"metadata": map[string]any{"uid": key + "-shop"}}))
	}
	w.Hetzner.SetServers(schema.Server{ID: 1, Name: "k8s-control-plane-0",
		Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	w.Hetzner.SetNetworks(schema.Network{ID: 78, Labels: map[string]string{"caph-cluster-k8s": "owned"},
		IPRange: "10.10.0.0/16"})
	w.Workload.Put(kubetest.Object("v1", "Secret", "kube-system", config.CCMSecretName,
		map[string]any{"data": map[string]any{render.HCloudNetworkKey: "Nzc="}}))
	return steps.Kubeconfig{File: platform.Kubeconfig}
}

// fakeEtcd are three Talos servers, by their private addresses.
type fakeEtcd struct {
	clustertest.HealthyTalos
	mu       sync.Mutex
	data     map[string]bool
	uploaded map[string]string
	silent   map[string]bool
	booting  int                                        // refusals of a snapshot that are to come
	refuse   error                                      // of Bootstrap
	members  func(talos.Route) []talos.EtcdMember       // nil: three, the same for everybody
	state    func(talos.Route) (etcd string, err error) // nil: it runs
	calls    []string                                   // that change something
	patient  time.Duration                              // least time that an upload was given
}

func (f *fakeEtcd) LocalEtcdMembers(ctx context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	if f.members == nil {
		return f.HealthyTalos.LocalEtcdMembers(ctx, r)
	}
	return f.members(r), f.answer(r)
}

func (f *fakeEtcd) Ask(ctx context.Context, r talos.Route) (talos.Node, error) {
	if f.state == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.data[r.Endpoint] {
			return talos.Node{Etcd: etcdview.Preparing}, f.answer(r)
		}
		return f.HealthyTalos.Ask(ctx, r)
	}
	etcd, err := f.state(r)
	return talos.Node{Etcd: etcd}, err
}

func (f *fakeEtcd) answer(r talos.Route) error {
	if f.silent[r.Endpoint] {
		return errors.New("connection refused")
	}
	return nil
}

func (f *fakeEtcd) HasEtcdData(_ context.Context, r talos.Route) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.data[r.Endpoint], f.answer(r)
}

func (f *fakeEtcd) HasSnapshot(_ context.Context, r talos.Route, snapshot io.Reader, size int64) (bool, error) {
	data, err := io.ReadAll(snapshot)
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(len(data)) != size {
		err = fmt.Errorf("a snapshot of %d bytes is said to have %d", len(data), size)
	}
	there, has := f.uploaded[r.Endpoint]
	return has && there == string(data), errors.Join(err, f.answer(r))
}

func (f *fakeEtcd) UploadSnapshot(ctx context.Context, r talos.Route, snapshot io.Reader) error {
	data, err := io.ReadAll(snapshot)
	f.mu.Lock()
	defer f.mu.Unlock()
	if until, bounded := ctx.Deadline(); bounded && (f.patient == 0 || time.Until(until) < f.patient) {
		f.patient = time.Until(until)
	}
	if f.booting > 0 {
		f.booting--
		return errors.New("etcd service is not ready for recovery yet")
	}
	f.uploaded[r.Endpoint] = string(data)
	f.calls = append(f.calls, "upload "+r.Endpoint)
	return err
}

func (f *fakeEtcd) BootstrapRecovered(_ context.Context, r talos.Route) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, "bootstrap "+r.Endpoint)
	if f.refuse != nil {
		return f.refuse
	}
	if f.uploaded[r.Endpoint] == "" {
		return errors.New("no snapshot")
	}
	f.data[r.Endpoint] = true
	return nil
}

// restoreWorld is an environment in which a cluster was lost.
type restoreWorld struct {
	*clustertest.Environment
	etcd   *fakeEtcd
	source backup.Cluster
	r      inputs
	said   []string
}

func (w *restoreWorld) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

const theSnapshot = "a snapshot of etcd"

// lostBackup is a backup of a cluster that managed itself.
func lostBackup(t *testing.T) backup.Cluster {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(file, []byte(theSnapshot), 0o600); err != nil {
		t.Fatal(err)
	}
	object := func(apiVersion, kind, name string, fields clustertest.Map) unstructured.Unstructured {
		o := kubetest.Object(apiVersion, kind, config.DefaultNamespace, name, fields)
		o.SetUID("old")
		o.SetResourceVersion("7")
		o.SetFinalizers([]string{"hold"})
		return *o
	}
	c := &backup.Contents{
		Header: backup.Header{Cluster: "k8s", UID: "workload", SelfManaged: true, Taken: time.Now(),
			Etcd: backup.Etcd{Revision: 1}},
		Snapshot: backup.Snapshot{Size: int64(len(theSnapshot)), SHA256: "5a5a"},
		Objects: []unstructured.Unstructured{
			object(clustertest.CAPI, "Cluster", "k8s", map[string]any{"spec": map[string]any{
				"paused": true, "controlPlaneEndpoint": map[string]any{"host": "127.0.0.7", "port": 6443},
				"controlPlaneRef": map[string]any{"name": "k8s-control-plane"},
			}}),
			object(clustertest.CAPH, "HetznerCluster", "k8s", map[string]any{
				"spec": map[string]any{
					"controlPlaneEndpoint":     map[string]any{"host": "127.0.0.7", "port": 6443},
					"controlPlaneLoadBalancer": map[string]any{"type": "lb11", "region": "nbg1"}, "controlPlaneRegions": []any{"nbg1"},
				},
				"status": map[string]any{"controlPlaneLoadBalancer": map[string]any{"ipv4": "127.0.0.7"}},
			}),
			object(clustertest.CACPPT, "TalosControlPlane", "k8s-control-plane", map[string]any{
				"spec": map[string]any{"replicas": 3, "version": "v1.32.2",
					"infrastructureTemplate": map[string]any{"name": "k8s-control-plane-1a2b3"},
					"controlPlaneConfig":     map[string]any{"controlplane": map[string]any{"strategicPatches": []any{"certSANs: [127.0.0.7, 127.0.0.70]"}}}},
				"status": map[string]any{"bootstrapped": true},
			}),
			object(clustertest.CAPH, "HCloudMachineTemplate", "k8s-control-plane-1a2b3",
				map[string]any{"spec": map[string]any{"template": map[string]any{
					"spec": map[string]any{"type": "cax21", "imageName": "talos-arm64-v9"}}}}),
			object(clustertest.CAPI, "Machine", "k8s-control-plane-old", nil), object(clustertest.CAPH, "HCloudMachine",
				"k8s-control-plane-old", nil),
		},
		Secrets: []unstructured.Unstructured{object("v1", "Secret", "k8s-talos", map[string]any{"data": map[string]any{
			"bundle": base64.StdEncoding.EncodeToString([]byte("every key"))}})},
	}
	return backup.Cluster{Contents: c, Snapshot: file}
}

func newRestoreWorld(t *testing.T) *restoreWorld {
	t.Helper()
	w := &restoreWorld{Environment: clustertest.New(t), source: lostBackup(t)}
	w.etcd = &fakeEtcd{data: map[string]bool{}, uploaded: map[string]string{}, silent: map[string]bool{}}
	w.Provider.There = false
	w.Workload = kubetest.New("workload",
		clustertest.Resource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1"),
		clustertest.Resource("Provider", "providers", "clusterctl.cluster.x-k8s.io", "v1alpha3"),
	)
	t.Cleanup(func() {
		w.Workload.CloseClientConnections()
		w.Workload.Close()
	})
	cfg, err := w.source.Configure(config.Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, timeout := range []*config.Duration{&cfg.ControlPlaneTimeout, &cfg.LoadBalancerTimeout} {
		*timeout = config.Duration(5 * time.Second)
	}
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return w.etcd, nil }
	w.r = inputsOf(cfg, tools, w.source)
	return w
}

// restoredCluster is the Cluster object that a restore of the environment's backup creates.
func restoredCluster(w *restoreWorld) *unstructured.Unstructured {
	c := kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil)
	c.SetAnnotations(map[string]string{capi.RestoredAnnotation: w.source.Identity().Snapshot})
	return c
}

// inputsOf are the inputs of a restore's steps in a folder without files of the operator.
func inputsOf(cfg config.Config, tools platform.Tools, backup backup.Cluster) inputs {
	tools, sources := tools.WithDefaults(), render.Sources{Vars: render.VariablesOf(cfg)}
	return inputs{cfg: cfg, tools: tools, sources: sources, source: backup,
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}}
}
