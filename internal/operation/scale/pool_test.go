package scale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

type object = clustertest.Map

// machines plays Cluster API's controller of MachineDeployments and CAPH: as many Machines, servers and nodes as are
// asked for.
type machines struct {
	*clustertest.Environment
	t       *testing.T
	mu      sync.Mutex
	stuck   bool // nothing is created or deleted
	servers map[string]schema.Server
	next    int64
}

// newMachines has a cluster with worker pools.
func newMachines(t *testing.T, pools ...config.WorkerPool) (*machines, config.Config, platform.Tools) {
	t.Helper()
	m := &machines{Environment: clustertest.New(t), t: t, servers: map[string]schema.Server{}, next: 200}
	cfg := m.Config()
	cfg.Workers = pools
	if _, err := bootstrapped.Run(t, m.Environment, cfg, flow.Memory(), "wait-nodes", "workers"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(m.Management, clustertest.ClusterAPIKinds())
	m.sync()
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				m.sync()
			}
		}
	})
	t.Cleanup(func() { close(done); running.Wait() })
	cfg.NodesTimeout = config.Duration(time.Minute)
	return m, cfg, m.Tools()
}

func (m *machines) setStuck(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stuck = is
}

// all are the objects of a kind in the management cluster, by name.
func (m *machines) all(kind string) map[string]*unstructured.Unstructured {
	found := map[string]*unstructured.Unstructured{}
	for _, o := range m.Management.All() {
		if o.GetKind() == kind {
			found[o.GetName()] = o
		}
	}
	return found
}

func (m *machines) sync() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stuck {
		return
	}
	deployments := m.all("MachineDeployment")
	for name := range m.servers {
		if i := strings.LastIndex(name, "-m-"); deployments[name[:i]] == nil {
			m.remove(name)
		}
	}
	for name, d := range deployments {
		want, _, _ := unstructured.NestedFieldNoCopy(d.Object, "spec", "replicas")
		var n int
		_, _ = fmt.Sscan(fmt.Sprint(want), &n)
		has := m.of(name)
		for i := len(has); i < n; i++ {
			m.add(d, fmt.Sprintf("%s-m-%d", name, m.next))
		}
		for _, one := range has[min(n, len(has)):] {
			m.remove(one)
		}
		if capi.Number(d, "status", "readyReplicas") != int64(n) || d.GetLabels()[capi.ClusterNameLabel] == "" {
			m.Management.Change(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, name, object{
				"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s"}}, // of Cluster API's webhook
				"status":   object{"replicas": n, "updatedReplicas": n, "readyReplicas": n}})
		}
	}
}

// of are the servers of a MachineDeployment.
func (m *machines) of(deployment string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(m.servers)) {
		if strings.HasPrefix(name, deployment+"-m-") {
			names = append(names, name)
		}
	}
	return names
}

func (m *machines) add(d *unstructured.Unstructured, name string) {
	id := m.next
	m.next++
	private := fmt.Sprintf("10.10.64.%d", id-150)
	labels := object{capi.ClusterNameLabel: "k8s", capi.DeploymentLabel: d.GetName()}
	template, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
	for key, value := range template {
		labels[key] = value
	}
	version := capi.Text(d, "spec", "template", "spec", "version")
	m.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name, object{
		"metadata": object{"labels": labels},
		"spec":     object{"placementGroupName": strings.TrimPrefix(d.GetName(), "k8s-")}}))
	m.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{
		"metadata": object{"labels": labels},
		"spec":     object{"infrastructureRef": object{"name": name}, "version": version}}))
	m.Workload.Put(kubetest.Object("v1", "Node", "", name, object{
		"metadata": object{"labels": object{capi.WorkerPoolNodeLabel: template[capi.WorkerPoolNodeLabel]}},
		"spec":     object{"providerID": fmt.Sprintf("hcloud://%d", id)},
		"status": object{"nodeInfo": object{"kubeletVersion": version},
			"conditions": []any{object{"type": "Ready", "status": "True"}},
			"addresses":  []any{object{"type": "InternalIP", "address": private}}},
	}))
	m.servers[name] = schema.Server{ID: id, Name: name, Status: "running",
		Labels:     map[string]string{"caph-cluster-k8s": "owned", "machine_type": "worker"},
		PrivateNet: []schema.ServerPrivateNet{{IP: private}}}
	m.tell()
}

func (m *machines) remove(name string) {
	delete(m.servers, name)
	m.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
	m.Management.Remove(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name)
	m.Workload.Remove("v1", "Node", "", name)
	m.tell()
}

// tell tells Hetzner of the servers.
func (m *machines) tell() {
	m.Hetzner.SetServers(slices.SortedFunc(maps.Values(m.servers),
		func(a, b schema.Server) int { return cmp.Compare(a.ID, b.ID) })...)
}

// groups are the placement groups that the HetznerCluster lists.
func (m *machines) groups() (names []string) {
	o := m.Management.Get(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
	listed, _, _ := unstructured.NestedSlice(o.Object, "spec", "hcloudPlacementGroups")
	for _, one := range listed {
		names = append(names, one.(map[string]any)["name"].(string))
	}
	return names
}

func (m *machines) replicas() string {
	var all []string
	deployments := m.all("MachineDeployment")
	for _, name := range slices.Sorted(maps.Keys(deployments)) {
		n, _, _ := unstructured.NestedFieldNoCopy(deployments[name].Object, "spec", "replicas")
		all = append(all, fmt.Sprintf("%s %v", name, n))
	}
	return strings.Join(all, ", ")
}

func general(n int) config.WorkerPool { return config.WorkerPool{Name: "general", Replicas: n} }

// TestPool goes from one placement group to two and back. What another pool lacks does not matter.
func TestPool(t *testing.T) {
	m, cfg, tools := newMachines(t, general(2), config.WorkerPool{Name: "general-x", Replicas: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m.Workload.Change("v1", "Node", "", m.of("k8s-general-x")[0], object{"status": object{"conditions": []any{
		object{"type": "Ready", "status": "False"}}}})
	pool := NewPool(cfg, tools, "general")
	writes := len(m.Management.Writes())
	change, err := pool.Examine(ctx, t.Logf, 12)
	if err != nil || change.From != 2 || change.Adds() != 10 || change.Removes() != 0 || change.Monthly.Monthly == 0 ||
		len(change.Servers) != 2 || len(m.Management.Writes()) != writes {
		t.Fatalf("%+v, %v", change, err)
	}
	for _, says := range []string{"adds 10 servers of type cx33 in nbg1 to worker pool general: 2 → 12",
		"MachineDeployment k8s-general 2 → 9, MachineDeployment k8s-general-2 is created with 3 servers"} {
		if !strings.Contains(change.String(), says) {
			t.Errorf("it does not say %q: %s", says, change)
		}
	}
	if len(change.Notes) != 1 || !strings.Contains(change.Notes[0], "have 3 servers, and get 10 more") {
		t.Errorf("notes %q", change.Notes)
	}
	steps, err := pool.Run(ctx, t.Logf, 12)
	if err != nil || len(steps) != 1 || len(steps[0].Added) != 10 || len(steps[0].Deleted) > 0 {
		t.Fatalf("%+v, %v", steps, err)
	}
	if is := m.replicas(); is != "k8s-general 9, k8s-general-2 3, k8s-general-x 1" {
		t.Error(is)
	}
	if is := m.groups(); !slices.Equal(is, []string{"control-plane", "general", "general-x", "general-2"}) {
		t.Errorf("placement groups %v", is)
	}
	check := m.all("MachineHealthCheck")["k8s-general"]
	if fmt.Sprint(check.Object["spec"].(object)["maxUnhealthy"]) != "3" {
		t.Errorf("%v", check.Object["spec"])
	}
	if steps, err := pool.Run(ctx, t.Logf, 12); err != nil || len(steps) > 0 {
		t.Errorf("a second time: %+v, %v", steps, err)
	}

	change, err = pool.Examine(ctx, t.Logf, 1)
	if err != nil || change.Removes() != 11 ||
		!strings.Contains(change.String(), "MachineDeployment k8s-general-2 is deleted with 3 servers") {
		t.Fatalf("%v, %v", change, err)
	}
	if steps, err = pool.Run(ctx, t.Logf, 1); err != nil || len(steps) != 1 || len(steps[0].Deleted) != 11 {
		t.Fatalf("%+v, %v", steps, err)
	}
	if is := m.replicas(); is != "k8s-general 1, k8s-general-x 1" {
		t.Error(is)
	}
	if is := m.groups(); !slices.Equal(is, []string{"control-plane", "general", "general-x"}) {
		t.Errorf("placement groups %v", is)
	}
	for _, kind := range []string{"HCloudMachineTemplate", "TalosConfigTemplate", "MachineHealthCheck"} {
		for name := range m.all(kind) {
			if strings.HasPrefix(name, "k8s-general-2") {
				t.Errorf("%s %s is left", kind, name)
			}
		}
	}
}

// TestPoolCutOff has a run that ends while the servers of a further placement group are missing, and one that ends
// while they are being deleted.
func TestPoolCutOff(t *testing.T) {
	m, cfg, tools := newMachines(t, general(9))
	pool := NewPool(cfg, tools, "general")
	for _, to := range []int{11, 3} {
		m.setStuck(true)
		short := cfg
		short.NodesTimeout = config.Duration(time.Second)
		steps, err := NewPool(short, tools, "general").Run(t.Context(), t.Logf, to)
		if err == nil || len(steps) > 0 || !strings.Contains(err.Error(), fmt.Sprintf("scale workers/general %d completes it",
			to)) {
			t.Fatalf("%+v, %v", steps, err)
		}
		m.setStuck(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := pool.Run(ctx, t.Logf, to); err != nil {
			t.Errorf("again: %v", err)
		}
		cancel()
	}
	if is := m.replicas(); is != "k8s-general 3" {
		t.Error(is)
	}
	if is := m.groups(); !slices.Equal(is, []string{"control-plane", "general"}) {
		t.Errorf("placement groups %v", is)
	}
}

// TestPoolOutsideOfTheConfiguration scales what only the cluster has, as far as no further placement group is needed.
func TestPoolOutsideOfTheConfiguration(t *testing.T) {
	m, cfg, tools := newMachines(t, general(1))
	cfg.Workers = nil
	pool := NewPool(cfg, tools, "general")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := pool.Run(ctx, t.Logf, 4); err != nil || m.replicas() != "k8s-general 4" {
		t.Errorf("%s, %v", m.replicas(), err)
	}
	if _, err := pool.Run(ctx, t.Logf, 10); err == nil || !strings.Contains(err.Error(), "add it to workers in") {
		t.Errorf("ten: %v", err)
	}
}

// budget blocks the drain of nodes.
func (m *machines) budget(nodes ...string) {
	m.Workload.Put(kubetest.Object("policy/v1", "PodDisruptionBudget", "shop", "web", object{
		"spec":   object{"selector": object{"matchLabels": object{"app": "web"}}},
		"status": object{"expectedPods": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}}))
	for _, node := range nodes {
		m.Workload.Put(kubetest.Object("v1", "Pod", "shop", "web-on-"+node, object{
			"metadata": object{"labels": object{"app": "web"}}, "spec": object{"nodeName": node},
			"status": object{"phase": "Running"}}))
	}
}

// TestPoolBudgets has a budget that may not be met, and one that is named while a drain waits for it.
func TestPoolBudgets(t *testing.T) {
	m, cfg, tools := newMachines(t, general(3))
	m.budget(m.of("k8s-general")[0])
	pool := NewPool(cfg, tools, "general")
	change, err := pool.Examine(t.Context(), t.Logf, 1)
	if err != nil || len(change.Notes) != 1 || !strings.Contains(change.Notes[0], "PodDisruptionBudget shop/web") {
		t.Fatalf("%+v, %v", change, err)
	}
	m.setStuck(true)
	leaving := m.of("k8s-general")[0]
	m.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, leaving, object{
		"metadata": object{"deletionTimestamp": time.Now().UTC().Format(time.RFC3339)}})
	cfg.NodesTimeout = config.Duration(time.Second)
	_, err = NewPool(cfg, tools, "general").Run(t.Context(), t.Logf, 2)
	for _, says := range []string{"Machine " + leaving + " is being deleted",
		"the drain waits for PodDisruptionBudget shop/web"} {
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("it should say %q: %v", says, err)
		}
	}
}

// TestPoolRefusals has what keeps a pool from being scaled. Nothing is changed.
func TestPoolRefusals(t *testing.T) {
	deployment := func(m *machines, fields object) {
		m.setStuck(true)
		m.Management.Change(clustertest.CAPI, "MachineDeployment", config.DefaultNamespace, "k8s-general", fields)
	}
	for what, tt := range map[string]struct {
		pool   string
		to     int
		change func(*machines, *config.Config, *platform.Tools)
		says   string
		usage  bool
	}{
		"another name": {"genera", 4, nil, `no worker pool "genera", but general; did you mean workers/general?`, true},
		"not created yet": {"db", 4, func(_ *machines, c *config.Config, _ *platform.Tools) {
			c.Workers = append(c.Workers, config.WorkerPool{Name: "db", Replicas: 1})
		}, "does not have worker pool db yet", true},
		"autoscaled": {"general", 4, func(m *machines, _ *config.Config, _ *platform.Tools) {
			deployment(m, object{"metadata": object{"annotations": object{capi.AutoscalerMin: "1", capi.AutoscalerMax: "3"}}})
		}, "change min and max", false},
		"servers are being replaced": {"general", 4, func(m *machines, _ *config.Config, _ *platform.Tools) {
			deployment(m, object{"status": object{"replicas": 3, "updatedReplicas": 1}})
		}, "being replaced", false},
		"no image": {"general", 4, func(m *machines, _ *config.Config, _ *platform.Tools) {
			m.Hetzner.SetImages()
		}, "another server could not be made", false},
		"out of stock": {"general", 4, func(_ *machines, _ *config.Config, tools *platform.Tools) {
			market := hetznertest.NewSelling("cx33 nbg1")
			t.Cleanup(market.Close)
			market.Put("images", 1, hetznertest.Image(1, config.Defaults().Image("amd64"), "x86", "available"))
			tools.Hetzner = market.Client(nil)
		}, "out of stock in nbg1", false},
		"a further group of another kind": {"general", 10, func(_ *machines, c *config.Config, _ *platform.Tools) {
			c.Workers[0].Patches = []string{"machine: {sysctls: {a: b}}"}
		}, "configured differently now (bootstrap.configRef.name", false},
		"no eviction is allowed": {"general", 1, func(m *machines, _ *config.Config, _ *platform.Tools) {
			m.budget(m.of("k8s-general")[1])
			m.budget(m.of("k8s-general")[0])
		}, "PodDisruptionBudget shop/web", false},
	} {
		t.Run(what, func(t *testing.T) {
			m, cfg, tools := newMachines(t, general(2))
			if tt.change != nil {
				tt.change(m, &cfg, &tools)
			}
			writes := len(m.Management.Writes())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			steps, err := NewPool(cfg, tools, tt.pool).Run(ctx, t.Logf, tt.to)
			_, refused := errors.AsType[*RefusedError](err)
			if _, misused := errors.AsType[*usage.Error](err); misused != tt.usage || refused == tt.usage ||
				!strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if wrote := m.Management.Writes()[writes:]; len(wrote) > 0 || len(steps) > 0 {
				t.Errorf("it wrote %v, %v", wrote, steps)
			}
		})
	}
}
