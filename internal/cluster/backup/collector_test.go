package backup_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

// aCluster is a environment with a finished cluster, whose kinds are defined as clusterctl defines them.
func aCluster(t *testing.T) (*clustertest.Environment, backup.Collector) {
	t.Helper()
	w := clustertest.New(t)
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory()); err != nil {
		t.Fatal(err)
	}
	// What only real controllers make.
	metadata := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}}
	w.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, "k8s-talos",
		clustertest.Map{"metadata": metadata, "data": clustertest.Map{"bundle": "c2VjcmV0"}}))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "other",
		clustertest.Map{"metadata": clustertest.Map{"uid": "other"}}))
	w.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, "other-talos",
		clustertest.Map{"data": clustertest.Map{"bundle": "b3RoZXI="}}))
	owned := clustertest.Map{"metadata": clustertest.Map{
		"ownerReferences": []any{clustertest.Map{"apiVersion": clustertest.CAPI, "kind": "Cluster", "name": "k8s",
			"uid": string(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s").GetUID())}},
		"managedFields": []any{clustertest.Map{"manager": "somebody"}},
	}}
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-0", owned)
	w.Management.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", owned)
	w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", owned)
	return w, backup.NewCollector(w.Config(), w.Tools())
}

// TestLookForBackup wants everything of the cluster, nothing of another, and not one write to anybody.
func TestLookForBackup(t *testing.T) {
	w, o := aCluster(t)
	before := w.Writes()
	s, err := o.Read(t.Context(), clustertest.Silent, "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Snapshot(t.Context(), clustertest.Silent)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(stream)
	if err = errors.Join(err, stream.Close()); err != nil || string(data) != "snapshot" {
		t.Errorf("the snapshot is %q, %v", data, err)
	}
	if after := w.Writes(); after != before {
		t.Errorf("%d writes", after-before)
	}
	c := s.Contents
	h := c.Header
	if h.Cluster != "k8s" || h.UID != "workload" || h.SelfManaged || h.Slipway != "v1.2.3" ||
		time.Since(h.Taken) > time.Minute || h.Etcd.Revision != 1 ||
		h.Etcd.From != "127.0.1.0" || len(h.Etcd.Members) != 3 || h.Versions["TALOS_VERSION"] != "v1.13.9" ||
		h.Versions["CAPI_VERSION"] != "v1.13.6" ||
		h.Versions["KUBERNETES_VERSION"] != "v1.35.4" || h.Versions["CILIUM_VERSION"] != "1.19.9" {
		t.Errorf("header %+v", h)
	}
	var names []string
	for _, o := range append(slices.Clone(c.Objects), c.Secrets...) {
		names = append(names, o.GetKind()+" "+o.GetName())
		if len(o.GetManagedFields()) > 0 {
			t.Errorf("%s has managed fields", o.GetName())
		}
	}
	for _, want := range []string{"Cluster k8s", "Machine k8s-control-plane-0", "Secret k8s-talos",
		"Secret k8s-kubeconfig", "Secret k8s-talosconfig", "Secret hetzner"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s among %q", want, names)
		}
	}
	if i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "other") }); i >= 0 {
		t.Errorf("%s is another cluster's", names[i])
	}
	machine := c.Objects[slices.Index(names, "Machine k8s-control-plane-0")]
	if len(capi.Addresses(&machine, capi.AddressExternal)) != 1 {
		t.Error("a Machine has lost its status")
	}
	checkFiles(t, w, c)
	if len(c.Releases) != 3 || c.Releases[0].Name != "cilium" || c.Releases[0].Version != "1.19.9" ||
		c.Releases[0].Values["kubeProxyReplacement"] != true {
		t.Errorf("releases %+v", c.Releases)
	}
	if i := slices.IndexFunc(c.Inventory.Resources,
		func(r backup.Resource) bool { return r.Name == "k8s-control-plane-1" }); i < 0 ||
		c.Inventory.Resources[i].ID != 101 || !slices.Contains(c.Inventory.Resources[i].Addresses, "10.10.64.3") ||
		c.Inventory.Resources[i].Labels["caph-cluster-k8s"] != "owned" {
		t.Errorf("inventory %+v", c.Inventory)
	}
}

// TestTheRevisionIsReadFirst: a member of etcd that is a little behind gives a snapshot as well, and has the time of
// the whole look to come to the revision that its backup names.
func TestTheRevisionIsReadFirst(t *testing.T) {
	w, o := aCluster(t)
	var mu sync.Mutex
	var order []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, what)
	}
	w.Workload.Fail = func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/api/v1/namespaces") {
			note("revision")
		}
		return 0, ""
	}
	w.Management.Fail = func(r *http.Request) (int, string) {
		// A watch may still be of the run that has made the cluster.
		if strings.HasSuffix(r.URL.Path, "/machines") && r.URL.Query().Get("watch") == "" {
			note("objects")
		}
		return 0, ""
	}
	if _, err := o.Read(t.Context(), clustertest.Silent, ""); err != nil {
		t.Fatal(err)
	}
	if len(order) < 2 || order[0] != "revision" || slices.Contains(order[1:], "revision") {
		t.Errorf("it reads %v", order)
	}
}

// checkFiles wants the files that were used, and the configuration in a form that is read again, without the token.
func checkFiles(t *testing.T, w *clustertest.Environment, c backup.Contents) {
	t.Helper()
	files := map[string]string{}
	for _, f := range c.Files {
		files[f.Name] = string(f.Data)
	}
	for name, want := range map[string]string{
		"manifests/cluster.yaml": "${CLUSTER_NAME", "manifests/machine-health-check.yaml": "MachineHealthCheck",
		"bootstrap/cilium-values.yaml": "kubeProxyReplacement",
		"rendered/cluster.yaml":        clustertest.LoadBalancerIP,
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s does not contain %q:\n%s", name, want, files[name])
		}
	}
	if strings.Contains(files["rendered/cluster.yaml"], "${") {
		t.Error("rendered/cluster.yaml is not rendered")
	}
	var again config.Config
	if err := yaml.UnmarshalStrict(c.Config, &again); err != nil || !reflect.DeepEqual(again, w.Config()) {
		t.Errorf("the configuration came back as %+v, %v", again, err)
	}
	if strings.Contains(string(c.Config), w.Tools().Token.Reveal()) {
		t.Error("the token stands in the configuration")
	}
}

// TestHolder finds the one that holds the Cluster object, and refuses a pivot on its way.
func TestHolder(t *testing.T) {
	w, o := aCluster(t)
	take := func() (bool, error) {
		s, err := o.Read(t.Context(), clustertest.Silent, "")
		if err != nil {
			return false, err
		}
		return s.Contents.Header.SelfManaged, nil
	}
	// The kubeconfig is not needed: the manager has one.
	if err := w.Tools().WithDefaults().Files.Remove(platform.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	if self, err := take(); err != nil || self {
		t.Errorf("without a kubeconfig: self-managed %v, %v", self, err)
	}
	// Self-managed: the same objects in one cluster that is its own manager.
	if err := w.Tools().WithDefaults().Files.Write(platform.Kubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	if self, err := take(); err != nil || !self {
		t.Errorf("its own manager: self-managed %v, %v", self, err)
	}
	second := kubetest.New("second", clustertest.ClusterAPIKinds()...)
	t.Cleanup(second.Close)
	t.Cleanup(second.CloseClientConnections)
	clustertest.Define(second, clustertest.ClusterAPIKinds())
	if err := w.Tools().WithDefaults().Files.Write(platform.Kubeconfig, second.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	second.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		clustertest.Map{"spec": clustertest.Map{"paused": true}}))
	if _, err := take(); err == nil || !strings.Contains(err.Error(), "pivot is on its way") {
		t.Errorf("both hold it: %v", err)
	}
	for _, file := range []string{platform.Kubeconfig, platform.ManagementKubeconfig} {
		if err := w.Tools().WithDefaults().Files.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := take(); err == nil || !strings.Contains(err.Error(), "no cluster k8s to back up") {
		t.Errorf("nobody: %v", err)
	}
	if w.Provider.Ensured != 1 {
		t.Errorf("a management cluster was asked for %d times, and once by the bootstrap", w.Provider.Ensured)
	}
}

// talosAt answers by address, and counts who was asked for a snapshot.
type talosAt struct {
	clustertest.HealthyTalos
	sick     map[string]error // of Ask
	streams  map[string]func(ctx context.Context) (io.ReadCloser, error)
	snapshot []string
}

func (f *talosAt) Ask(_ context.Context, r talos.Route) (talos.Node, error) {
	return talos.Node{Etcd: "Running", Healthy: f.sick[r.Endpoint] == nil}, nil
}

func (f *talosAt) EtcdSnapshot(ctx context.Context, r talos.Route) (io.ReadCloser, error) {
	f.snapshot = append(f.snapshot, r.Endpoint)
	if open := f.streams[r.Endpoint]; open != nil {
		return open(ctx)
	}
	return nil, errors.New("connection refused")
}

// TestSnapshotDoors goes from one machine to the next, and to the load balancer last.
func TestSnapshotDoors(t *testing.T) {
	w, _ := aCluster(t)
	fake := &talosAt{
		sick: map[string]error{"127.0.1.0": errors.New("sick")},
		streams: map[string]func(context.Context) (io.ReadCloser, error){
			// A refusal comes as the stream's first word.
			"127.0.1.1": func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(failing{errors.New("not authorized")}), nil
			},
			"127.0.1.2": func(context.Context) (io.ReadCloser,
				error) {
				return io.NopCloser(strings.NewReader("")), nil
			},
			clustertest.LoadBalancerIP: func(context.Context) (io.ReadCloser,
				error) {
				return io.NopCloser(strings.NewReader("snapshot")), nil
			},
		},
	}
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return fake, nil }
	s, err := backup.NewCollector(w.Config(), tools).Read(t.Context(), clustertest.Silent, "")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := s.Snapshot(t.Context(), clustertest.Silent)
	if err != nil {
		t.Fatal(err)
	}
	stream.Close()
	if want := []string{"10.10.64.2", "127.0.1.1", "10.10.64.3", "127.0.1.2", "10.10.64.4",
		clustertest.LoadBalancerIP}; !slices.Equal(fake.snapshot, want) {
		t.Errorf("asked %q, want %q", fake.snapshot, want)
	}
	delete(fake.streams, clustertest.LoadBalancerIP)
	_, err = s.Snapshot(t.Context(), clustertest.Silent)
	for _, want := range []string{"k8s-control-plane-0 (127.0.1.0)", "does not call itself healthy", "not authorized",
		"empty snapshot", "load balancer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
