package readopt

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// readoptWorld is an environment in which managedBackup's cluster exists without management.
type readoptWorld struct {
	*clustertest.Environment
	source backup.Cluster
	etcd   []talos.EtcdMember
	said   []string

	mu      sync.Mutex
	written []string // what the manager was asked to make, in that order
}

func (w *readoptWorld) say(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

// membersOf answers for etcd.
type membersOf struct {
	clustertest.HealthyTalos
	w *readoptWorld
}

func (m membersOf) LocalEtcdMembers(context.Context, talos.Route) ([]talos.EtcdMember, error) {
	if m.w.etcd == nil {
		return nil, errors.New("no quorum")
	}
	return m.w.etcd, nil
}

func newReadoptWorld(t *testing.T) *readoptWorld {
	t.Helper()
	w := &readoptWorld{Environment: clustertest.New(t), source: managedBackup()}
	kinds := append(clustertest.ClusterAPIKinds(), clustertest.Resource("TalosConfig", "talosconfigs",
		"bootstrap.cluster.x-k8s.io", "v1alpha3"))
	for _, s := range []struct {
		to  **kubetest.Server
		uid string
	}{{&w.Management, "management"}, {&w.Workload, "workload"}} {
		server := kubetest.New(s.uid, kinds...)
		t.Cleanup(func() {
			server.CloseClientConnections()
			server.Close()
		})
		for _, k := range kinds {
			server.Put(clustertest.CRD(k.Plural, k.Group, k.Version, k.Kind))
		}
		*s.to = server
	}
	w.Management.Fail = func(r *http.Request) (int, string) {
		if r.Method != http.MethodGet {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.written = append(w.written, r.Method+" "+r.URL.Path[strings.LastIndex(r.URL.Path, "default/")+len("default/"):])
		}
		return 0, ""
	}
	w.Provider.Kubeconfig, w.Provider.There = w.Management.Kubeconfig(), false
	w.source.Secret("k8s-kubeconfig").Object["data"] = clustertest.Map{"value": base64.StdEncoding.EncodeToString(w.Workload.Kubeconfig())}
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	w.Hetzner.SetNetworks(schema.Network{ID: 77, Labels: owned, IPRange: "10.10.0.0/16"})
	w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(9, "lb", "127.0.0.7", owned, 6443))
	w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 8, Name: "k8s-control-plane", Labels: owned})
	w.serve("k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-2")
	return w
}

// serve makes these the cluster's servers, nodes and etcd members.
func (w *readoptWorld) serve(names ...string) {
	w.etcd = nil
	var servers []schema.Server
	for i, name := range names {
		servers = append(servers, schema.Server{ID: int64(100 + i), Name: name, Status: "running",
			Location:  schema.Location{Name: "nbg1"},
			PublicNet: schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "127.0.1.1"}},
			Labels: map[string]string{"caph-cluster-k8s": "owned", "machine.caph-name": name,
				"machine_type": "control_plane"}})
		w.etcd = append(w.etcd, talos.EtcdMember{ID: uint64(i), Name: name})
		w.Workload.Put(kubetest.Object("v1", "Node", "", name,
			clustertest.Map{"status": clustertest.Map{"nodeInfo": clustertest.Map{"kubeletVersion": "v1.32.2"}}}))
	}
	w.Hetzner.SetServers(servers...)
}

func (w *readoptWorld) plan(t *testing.T, accept ...string) *Plan {
	t.Helper()
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return membersOf{w: w}, nil }
	p, err := New(config.Defaults(), tools, w.source, accept)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestOnlyWhatNobodyManagesIsReadopted holds every refusal of the look, none of which changes anything.
func TestOnlyWhatNobodyManagesIsReadopted(t *testing.T) {
	cluster := func(fields clustertest.Map) *unstructured.Unstructured {
		return kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", fields)
	}
	mine := clustertest.Map{"annotations": clustertest.Map{capi.ReadoptedAnnotation: "5a5a"}}
	for _, c := range []struct {
		what   string
		spoil  func(*readoptWorld)
		is     error
		says   string
		allows bool
	}{
		{what: "nobody", allows: true},
		{what: "the management cluster is there and empty", spoil: func(w *readoptWorld) { w.Provider.There = true },
			allows: true},
		{what: "the management cluster", is: ErrManaged, says: "unpaused",
			spoil: func(w *readoptWorld) { w.Provider.There = true; w.Management.Put(cluster(nil)) }},
		{what: "the management cluster, paused", is: ErrManaged, says: "unpause it", spoil: func(w *readoptWorld) {
			w.Provider.There = true
			w.Management.Put(cluster(clustertest.Map{"spec": clustertest.Map{"paused": true}}))
		}},
		{what: "the management cluster, deleting", is: ErrManaged, says: "being deleted", spoil: func(w *readoptWorld) {
			w.Provider.There = true
			w.Management.Put(cluster(clustertest.Map{"metadata": clustertest.Map{"deletionTimestamp": "2026-01-02T03:04:05Z"}}))
		}},
		{what: "the cluster itself, since a pivot of which the backup knows nothing", is: ErrManaged, says: "itself",
			spoil: func(w *readoptWorld) { w.Workload.Put(cluster(clustertest.Map{"metadata": mine})) }},
		{what: "an earlier run's, paused", allows: true, spoil: func(w *readoptWorld) {
			w.Provider.There = true
			w.Management.Put(cluster(clustertest.Map{"metadata": mine, "spec": clustertest.Map{"paused": true}}))
		}},
		{what: "an earlier readoption's that is over", is: ErrManaged, says: "unpaused", spoil: func(w *readoptWorld) {
			w.Provider.There = true
			w.Management.Put(cluster(clustertest.Map{"metadata": mine}))
		}},
		{what: "its provider cannot tell", says: "Docker is away",
			spoil: func(w *readoptWorld) { w.Provider.ExistsError = errors.New("Docker is away") }},
		{what: "it does not answer", is: ErrNotLiving, says: "restore", spoil: func(w *readoptWorld) { w.Workload.Close() }},
		{what: "another cluster answers", is: ErrNotLiving, says: "another cluster than the backup's",
			spoil: func(w *readoptWorld) { w.source.Contents.Header.UID = "other" }},
		{what: "etcd does not answer", says: "no quorum", spoil: func(w *readoptWorld) { w.etcd = nil }},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := newReadoptWorld(t)
			if c.spoil != nil {
				c.spoil(w)
			}
			found, err := w.plan(t).Inspect(t.Context(), w.say)
			if c.allows != (err == nil) || c.is != nil && !errors.Is(err, c.is) || err != nil &&
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %v", found, err)
			}
			if err == nil && (len(found.Differences) > 0 || found.Comparison.Made != 0 || len(found.Comparison.Servers) != 3 ||
				found.PutBack != 20) {
				t.Errorf("it would %+v", found)
			}
			if err != nil && strings.Contains(err.Error(), "every key") {
				t.Error("a secret is told")
			}
			if w.Writes() > 0 {
				t.Error("a look changes something")
			}
		})
	}
}

func TestReadoptRefusesOnPaper(t *testing.T) {
	for says, change := range map[string]func(*backup.Cluster) []string{
		"CLUSTER_NAME=other": func(b *backup.Cluster) []string { b.Contents.Header.Cluster = "other"; return nil },
		"server-gone/x":      func(*backup.Cluster) []string { return []string{"server-gone/x"} },
		"server-missing":     func(*backup.Cluster) []string { return []string{"server-missing"} },
		"k8s-talos":          func(b *backup.Cluster) []string { b.Contents.Secrets = nil; return nil },
	} {
		source := managedBackup()
		accept := change(&source)
		if _, err := New(config.Defaults(), clustertest.New(t).Tools(), source, accept); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

func TestOneRecoveryAtATime(t *testing.T) {
	const began = `{"cluster": "k8s", "uid": "workload", "snapshot": "another", "began": "2026-01-02T03:04:05Z"`
	for what, write := range map[string]func(platform.Files, string) error{
		"a restore": func(f platform.Files, content string) error {
			return records.RestoreFiles(f).Write(records.RestoreRecord, []byte(content))
		},
		"recover-quorum": func(f platform.Files, content string) error {
			return records.QuorumFiles(f).Write(records.QuorumRecord,
				[]byte(content))
		},
		"another backup": func(f platform.Files, content string) error {
			return records.ReadoptFiles(f).Write(records.ReadoptRecord, []byte(content))
		},
	} {
		files := platform.FilesIn(t.TempDir())
		// One that is over is set aside, or says so; of recover-quorum nothing is left then.
		for content, allowed := range map[string]bool{began + "}": false, began +
			`, "ended": "2026-01-02T04:04:05Z"}`: what != "recover-quorum"} {
			if err := write(files, content); err != nil {
				t.Fatal(err)
			}
			if err := records.PrepareReadopt(files, managedBackup()); (err == nil) != allowed || err != nil &&
				!strings.Contains(err.Error(), what) {
				t.Errorf("%s, over: %v: %v", what, allowed, err)
			}
		}
	}
}

// TestAReadoptionThatIsOver is neither under way nor blocks another, and is still there after a look.
func TestAReadoptionThatIsOver(t *testing.T) {
	for over, ended := range map[bool]time.Time{true: time.Now(), false: {}} {
		w := newReadoptWorld(t)
		p := w.plan(t)
		files := p.in.tools.Files
		if err := (records.Readopt{ClusterIdentity: w.source.Identity(), Ended: ended}).Write(files); err != nil {
			t.Fatal(err)
		}
		if err := records.RoomForReadopt(files, w.source); err != nil {
			t.Errorf("over %v: %v", over, err)
		}
		if found, err := p.Inspect(t.Context(), w.say); err != nil || found.Underway == over {
			t.Errorf("over %v: under way is %v, %v", over, found.Underway, err)
		}
		if record, err := records.ReadReadopt(files); err != nil || record == nil {
			t.Errorf("over %v: its record is %+v, %v", over, record, err)
		}
	}
}

// TestAStaleBackupIsNotPutBack: without --accept nothing at all is changed, not even a management cluster made.
func TestAStaleBackupIsNotPutBack(t *testing.T) {
	w := newReadoptWorld(t)
	w.serve("k8s-control-plane-0", "k8s-control-plane-1")
	r := w.plan(t).in
	o, err := r.ensureOrphaned(t.Context(), w.say)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.compareAll(t.Context(), w.say, o)
	var open *UnacceptedError
	if !errors.As(err, &open) || len(open.Open) != 1 ||
		!strings.Contains(err.Error(), "server-missing/k8s-control-plane-2: ") || !strings.Contains(err.Error(), "--accept") {
		t.Errorf("%v", err)
	}
	if w.Writes() > 0 || w.Provider.Ensured > 0 {
		t.Error("something was changed")
	}
	// The node without a server is not found, as it is that server's.
	found, err := w.plan(t, "server-missing/k8s-control-plane-2").Inspect(t.Context(), w.say)
	if err != nil || len(found.Open) > 0 || found.Comparison.Made != 1 || found.PutBack != 16 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestAServerThatLostItsLabelsIsNotGone: it is asked for by its ID, in the comparison and once more before its node is
// removed.
func TestAServerThatLostItsLabelsIsNotGone(t *testing.T) {
	w := newReadoptWorld(t)
	r := w.plan(t).in
	if err := r.tools.Files.Write(platform.Kubeconfig, w.Workload.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	listed, sweep := []hetzner.Server{{ID: 100}, {ID: 101}}, Comparison{Gone: []string{"k8s-control-plane-2"}}
	node := func() *unstructured.Unstructured { return w.Workload.Get("v1", "Node", "", "k8s-control-plane-2") }
	s := hetznertest.NewEmpty()
	defer s.Close()
	r.tools.Hetzner = s.Client(nil)
	s.Put("servers", 102, schema.Server{Name: "k8s-control-plane-2"})
	if found, err := r.unlabelled(t.Context(), listed); err != nil ||
		!maps.Equal(found, map[int64]bool{102: true}) {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := r.removeGone(t.Context(), w.say, sweep); err == nil ||
		!strings.Contains(err.Error(), "hcloud://102") ||
		node() == nil {
		t.Errorf("the node of a server that lives is removed: %v", err)
	}
	empty := hetznertest.NewEmpty()
	defer empty.Close()
	r.tools.Hetzner = empty.Client(nil)
	if found, err := r.unlabelled(t.Context(), listed); err != nil || len(found) > 0 {
		t.Errorf("without it: %v, %v", found, err)
	}
	if _, err := r.removeGone(t.Context(), w.say, sweep); err != nil || node() != nil {
		t.Errorf("the node of a server that is gone stays: %v", err)
	}
}

// TestObjectsComeBackPaused puts them back twice, the second time as after a kill, and looks at what is there.
func TestObjectsComeBackPaused(t *testing.T) {
	w := newReadoptWorld(t)
	w.Provider.There = true
	w.serve("k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-new")
	accept := []string{"server-missing/k8s-control-plane-2", "server-unknown/k8s-control-plane-new"}
	p := w.plan(t, accept...)
	r := p.in
	o, err := r.ensureOrphaned(t.Context(), w.say)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := r.tools.Files.Read(platform.Kubeconfig); err != nil || string(k) != string(w.Workload.Kubeconfig()) {
		t.Errorf("the cluster's kubeconfig is not in the folder: %v", err)
	}
	// ID 102 is the new server's in this environment.
	w.source.Object("HCloudMachine", "k8s-control-plane-2").Object["spec"] = clustertest.Map{"providerID": "hcloud://999"}
	d, err := r.compareAll(t.Context(), w.say, o)
	if err != nil || len(d.Adopted) != 1 || d.Made != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	if err := r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m := steps.Management{Kubeconfig: platform.ManagementKubeconfig}
	for range 2 {
		if _, err := r.putBack(t.Context(), w.say, m, d); err != nil {
			t.Fatal(err)
		}
	}
	w.order(t)
	w.adopted(t)
	tcp := w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	if !capi.Truth(tcp, "status", "bootstrapped") || !capi.ConditionTrue(tcp, recovery.BootstrappedCondition) ||
		capi.ConditionTrue(tcp, "Ready") || capi.Number(tcp, "status", "observedGeneration") != 0 {
		t.Errorf("the control plane provider is told %v", tcp.Object["status"])
	}
	if capi.Text(w.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-m0"), "status",
		"phase") != "" {
		t.Error("a status is put back that its controller has to write")
	}

	// A change by another client keeps it paused; then it is let go.
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-m0",
		clustertest.Map{"spec": clustertest.Map{"version": "v9"}})
	if _, err := r.unpause(t.Context(), w.say, m, d); err == nil ||
		!strings.Contains(err.Error(), "spec.version") ||
		!capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), "spec", "paused") {
		t.Errorf("with a Machine that differs: %v", err)
	}
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-m0",
		clustertest.Map{"spec": clustertest.Map{"version": "v1.32.2"}})
	w.serve("k8s-control-plane-0", "k8s-control-plane-1")
	if _, err := r.unpause(t.Context(), w.say, m, d); err == nil ||
		!capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), "spec", "paused") {
		t.Errorf("with a server that has gone meanwhile: %v", err)
	}
	w.serve("k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-new")
	for range 2 {
		if _, err := r.unpause(t.Context(), w.say, m, d); err != nil ||
			capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), "spec", "paused") {
			t.Errorf("it is not let go: %v", err)
		}
	}
}

// TestObjectsMadeFromServersAreCompared holds that what an API server or a webhook has filled in is no difference where
// the objects were made from the servers, and that a changed value is.
func TestObjectsMadeFromServersAreCompared(t *testing.T) {
	w := newReadoptWorld(t)
	w.Provider.There = true
	r := w.plan(t).in
	o, err := r.ensureOrphaned(t.Context(), w.say)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.compareAll(t.Context(), w.say, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.tools.Files.Write(platform.ManagementKubeconfig, w.Management.Kubeconfig()); err != nil {
		t.Fatal(err)
	}
	m := steps.Management{Kubeconfig: platform.ManagementKubeconfig}
	if _, err := r.putBack(t.Context(), w.say, m, d); err != nil {
		t.Fatal(err)
	}
	change := func(fields clustertest.Map) {
		w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-m0", fields)
	}
	refused := func(what, field string) {
		t.Helper()
		if _, err := r.unpause(t.Context(), w.say, m, d); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", what, err)
		}
	}
	change(clustertest.Map{"metadata": clustertest.Map{"labels": clustertest.Map{"filled": "in"}},
		"spec": clustertest.Map{"nodeDeletionTimeout": "10s"}})
	refused("a backup of the objects", "spec.nodeDeletionTimeout")
	w.source.Contents.Header.FromServers = true
	change(clustertest.Map{"spec": clustertest.Map{"version": "v9"}})
	refused("another value", "spec.version")
	change(clustertest.Map{"spec": clustertest.Map{"version": "v1.32.2"}})
	if _, err := r.unpause(t.Context(), w.say, m, d); err != nil {
		t.Errorf("what is filled in is a difference: %v", err)
	}
}

// order wants the Cluster to have been made first, and every owner before what it owns, by the UID that it has here.
func (w *readoptWorld) order(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.written) == 0 || w.written[0] != "POST clusters" {
		t.Fatalf("made first: %v", w.written)
	}
	cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s")
	if !capi.Truth(cluster, "spec", "paused") || cluster.GetAnnotations()[capi.ReadoptedAnnotation] != "5a5a" {
		t.Errorf("the Cluster is %v", cluster.Object)
	}
	all := w.Management.All()
	owned := 0
	for _, o := range all {
		for _, owner := range o.GetOwnerReferences() {
			owned++
			if !slices.ContainsFunc(slices.Collect(maps.Values(all)), func(is *unstructured.Unstructured) bool {
				return is.GetUID() == owner.UID && is.GetName() == owner.Name && is.GetKind() == owner.Kind
			}) {
				t.Errorf("%s %s is owned by %+v, which is not there", o.GetKind(), o.GetName(), owner)
			}
		}
	}
	if owned != 18 {
		t.Errorf("%d objects are owned by others, want 18", owned)
	}
	for _, o := range []struct{ kind, name string }{{"HCloudMachine", "k8s-control-plane-2"},
		{"Machine", "k8s-control-plane-m2"}} {
		if slices.ContainsFunc(slices.Collect(maps.Values(all)),
			func(is *unstructured.Unstructured) bool { return is.GetKind() == o.kind && is.GetName() == o.name }) {
			t.Errorf("%s %s is there: its server would be made anew", o.kind, o.name)
		}
	}
}

// adopted wants the new server to have a Machine like the others.
func (w *readoptWorld) adopted(t *testing.T) {
	t.Helper()
	const name = "k8s-control-plane-new"
	machine, infrastructure := w.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name),
		w.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name)
	if machine == nil || infrastructure == nil ||
		w.Management.Get(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, name) == nil ||
		w.Management.Get("v1", "Secret", config.DefaultNamespace, name+"-bootstrap-data") == nil {
		t.Fatalf("the new server has %v and %v", machine, infrastructure)
	}
	if _, ok := machine.GetLabels()[capi.ControlPlaneLabel]; !ok ||
		capi.Text(machine, "spec", "providerID") != "hcloud://102" || capi.Text(machine, "spec", "infrastructureRef",
		"name") != name ||
		capi.Text(machine, "spec", "bootstrap", "dataSecretName") != name+"-bootstrap-data" ||
		capi.Text(machine, "spec", "bootstrap", "configRef", "name") != name {
		t.Errorf("its Machine is %v", machine.Object)
	}
	if capi.Text(infrastructure, "spec", "providerID") != "hcloud://102" ||
		infrastructure.GetAnnotations()[capi.ClonedFromAnnotation] != "template" ||
		infrastructure.GetOwnerReferences()[0].UID != machine.GetUID() {
		t.Errorf("its HCloudMachine is %v", infrastructure.Object)
	}
}
