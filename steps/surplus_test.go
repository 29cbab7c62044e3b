package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// emptyTalos are servers without an etcd, but for those that say otherwise.
type emptyTalos struct {
	clustertest.HealthyTalos
	data   []string // addresses of those that have data of etcd
	silent []string
	state  map[string]string // of the service, where it does not wait to be started
}

func (e *emptyTalos) HasEtcdData(_ context.Context, r talos.Route) (bool, error) {
	if slices.Contains(e.silent, r.Endpoint) {
		return false, errors.New("connection refused")
	}
	return slices.Contains(e.data, r.Endpoint), nil
}

func (e *emptyTalos) Ask(_ context.Context, r talos.Route) (talos.Node, error) {
	return talos.Node{Version: "v1.13.9", Etcd: cmp.Or(e.state[r.Endpoint], "Preparing")}, nil
}

var (
	resizing   = clustertest.Map{"type": "Resized", "status": "False", "reason": "ScalingDown", "severity": "Warning"}
	rollingOut = clustertest.Map{"type": "MachinesSpecUpToDate", "status": "False", "reason": "RollingUpdateInProgress",
		"severity": "Warning"}
)

// surplusWorld has four Machines of a control plane of three, m1 the oldest, on servers 127.0.1.1 to 4; etcd was never
// started.
type surplusWorld struct {
	*clustertest.Environment
	b       *Set
	mgmt    *kube.Cluster
	cluster Cluster
	talos   *emptyTalos
}

func newSurplus(t *testing.T) surplusWorld {
	t.Helper()
	w, b, mgmt, c := stuck(t)
	etcd := &emptyTalos{}
	b.tools.Talos = func([]byte) (talos.Client, error) { return etcd, nil }
	b.observer.Tools = b.tools
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", clustertest.Map{}))
	w.Management.Remove(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s")
	w.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, "k8s-talosconfig",
		clustertest.Map{"data": clustertest.Map{"talosconfig": w.Talosconfig}}))
	w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", clustertest.Map{
		"spec": clustertest.Map{"version": "v1.35.4", "infrastructureTemplate": clustertest.Map{"name": "template"},
			"controlPlaneConfig": clustertest.Map{ // as the providers write it
				"controlplane": clustertest.Map{"generateType": "controlplane", "talosVersion": "v1.12",
					"hostname": clustertest.Map{}},
				"init": clustertest.Map{"generateType": "", "hostname": clustertest.Map{}}}},
		"status": clustertest.Map{"conditions": []any{resizing}}})
	var servers []schema.Server
	all := surplusWorld{w, b, mgmt, c, etcd}
	for i := 1; i <= 4; i++ {
		all.machine(i)
		servers = append(servers,
			schema.Server{ID: int64(i), Name: fmt.Sprintf("m%d", i), Status: "running",
				Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	}
	w.Hetzner.SetServers(servers...)
	return all
}

// machine makes the Machine of a number, and its server.
func (w surplusWorld) machine(i int) {
	name, address := fmt.Sprintf("m%d", i), fmt.Sprintf("127.0.1.%d", i)
	meta := clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""},
		"annotations":       clustertest.Map{capi.ClonedFromAnnotation: "template"},
		"creationTimestamp": time.Date(2026, 5, 4, 12, 0, i, 0, time.UTC).Format(time.RFC3339)}
	w.Environment.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name,
		clustertest.Map{"metadata": meta,
			"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": name},
				"bootstrap":  clustertest.Map{"configRef": clustertest.Map{"name": name}},
				"providerID": fmt.Sprintf("hcloud://%d", i), "version": "v1.35.4"},
			"status": clustertest.Map{"addresses": []any{clustertest.Map{"type": "ExternalIP", "address": address}}}}))
	w.Environment.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name,
		clustertest.Map{"metadata": meta,
			"spec":   clustertest.Map{"providerID": fmt.Sprintf("hcloud://%d", i)},
			"status": clustertest.Map{"instanceState": "running"}}))
	w.Environment.Management.Put(kubetest.Object("bootstrap.cluster.x-k8s.io/v1alpha3", "TalosConfig", config.DefaultNamespace,
		name, clustertest.Map{"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s"}},
			"spec": clustertest.Map{"generateType": "controlplane", "talosVersion": "v1.12"}}))
}

// left are the Machines that are left.
func (w surplusWorld) left() string {
	var names []string
	for i := 1; i <= 4; i++ {
		if name := fmt.Sprintf("m%d", i); w.Environment.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace,
			name) != nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// tcp changes the TalosControlPlane.
func (w surplusWorld) tcp(change clustertest.Map) {
	w.Environment.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", change)
}

// serverless takes a Machine's server away, as if it could not be made.
func (w surplusWorld) serverless(name string) {
	w.Environment.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name,
		clustertest.Map{"spec": clustertest.Map{"providerID": ""}})
	w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name,
		clustertest.Map{"spec": clustertest.Map{"providerID": ""}, "status": clustertest.Map{"addresses": []any{}}})
}

// replacing has the provider replace all servers but the newest: their Kubernetes is another than wanted.
func (w surplusWorld) replacing() {
	w.tcp(clustertest.Map{"spec": clustertest.Map{"version": "v1.36.0"},
		"status": clustertest.Map{"conditions": []any{resizing, rollingOut}}})
	w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4",
		clustertest.Map{"spec": clustertest.Map{"version": "v1.36.0"}})
}

func (w surplusWorld) watcher() *surplus {
	return &surplus{b: w.b, mgmt: w.mgmt, cluster: w.cluster}
}

func (w surplusWorld) see(t *testing.T) why.Situation {
	s, _ := w.b.observer.Observe(t.Context(), w.mgmt, w.cluster.watched(config.DefaultNamespace))
	return s
}

// look looks twice, the second time when the surplus has stood long enough; between may change the environment.
func (w surplusWorld) look(t *testing.T, between func()) (busy bool, keeps string, err error) {
	t.Helper()
	p := w.watcher()
	busy, keeps, err = p.look(t.Context(), t.Logf, w.see(t))
	if w.left() != "m1 m2 m3 m4" {
		t.Fatalf("at the first look it takes one away: %s are left", w.left())
	}
	if err != nil || !busy {
		return busy, keeps, err
	}
	s := w.see(t)
	p.since = p.since.Add(-surplusStands)
	between()
	return p.look(t.Context(), t.Logf, s)
}

func TestSurplusIsTakenAway(t *testing.T) {
	t.Parallel()
	change := func(kind, apiVersion, name string, fields clustertest.Map) func(surplusWorld) {
		return func(w surplusWorld) {
			w.tcp(clustertest.Map{"status": clustertest.Map{"conditions": []any{resizing, rollingOut}}})
			w.Environment.Management.Change(apiVersion, kind, config.DefaultNamespace, name, fields)
		}
	}
	for name, tt := range map[string]struct {
		change func(surplusWorld)
		left   string
	}{
		"the newest":                                {func(surplusWorld) {}, "m1 m2 m3"},
		"one without a server":                      {func(w surplusWorld) { w.serverless("m2") }, "m1 m3 m4"},
		"the oldest of those that are replaced":     {surplusWorld.replacing, "m2 m3 m4"},
		"of those that are replaced the serverless": {func(w surplusWorld) { w.replacing(); w.serverless("m2") }, "m1 m3 m4"},
		"of an older version": {change("Machine", clustertest.CAPI, "m3",
			clustertest.Map{"spec": clustertest.Map{"version": "v1.34.0"}}), "m1 m2 m4"},
		"with another server": {change("HCloudMachine", clustertest.CAPH, "m3",
			clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.ClonedFromAnnotation: "other"}}}),
			"m1 m2 m4"},
		"with another configuration": {change("TalosConfig", "bootstrap.cluster.x-k8s.io/v1alpha3", "m3",
			clustertest.Map{"spec": clustertest.Map{"strategicPatches": []any{"machine: {}"}}}), "m1 m2 m4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSurplus(t)
			tt.change(w)
			if busy, keeps, err := w.look(t, func() {}); err != nil || !busy {
				t.Errorf("busy: %v, %q, %v", busy, keeps, err)
			}
			if got := w.left(); got != tt.left {
				t.Errorf("%s are left, want %s", got, tt.left)
			}
		})
	}
}

func TestSurplusIsLeftAlone(t *testing.T) {
	t.Parallel()
	tcp := func(change clustertest.Map) func(surplusWorld) { return func(w surplusWorld) { w.tcp(change) } }
	machine := func(name string, change clustertest.Map) func(surplusWorld) {
		return func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name, change)
		}
	}
	cluster := func(change clustertest.Map) func(surplusWorld) {
		return func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", change)
		}
	}
	deleting := clustertest.Map{"metadata": clustertest.Map{"deletionTimestamp": "2026-05-04T12:00:00Z",
		"finalizers": []any{"x"}}}
	resting := clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{capi.PausedAnnotation: ""}}}
	nothing := func(surplusWorld) {}
	for name, tt := range map[string]struct {
		change, between func(surplusWorld)
		keeps           string
	}{
		"one has data of etcd": {func(w surplusWorld) { w.talos.data = []string{"127.0.1.2"} }, nothing,
			"none is deleted, because m2 has data of an etcd, or is a node"},
		"one is a node": {machine("m2",
			clustertest.Map{"status": clustertest.Map{"nodeRef": clustertest.Map{"name": "m2"}}}), nothing,
			"none is deleted, because m2 has data of an etcd, or is a node"},
		"one does not answer": {func(w surplusWorld) { w.talos.silent = []string{"127.0.1.2"} }, nothing,
			"once Talos says on m2 that there is no etcd; if there never was one, kubectl --namespace default delete machine m4"},
		"one's etcd is not so far": {func(w surplusWorld) { w.talos.state = map[string]string{"127.0.1.3": "Waiting"} },
			nothing, "once Talos says on m3"},
		"a successor has no server": {func(w surplusWorld) { w.replacing(); w.serverless("m4") }, nothing,
			"once Talos says on m4"},
		"none is to be replaced": {tcp(clustertest.Map{"status": clustertest.Map{"conditions": []any{resizing,
			rollingOut}}}), nothing, "seem to be as wanted"},
		"its first server starts etcd": {tcp(clustertest.Map{"spec": clustertest.Map{"controlPlaneConfig": clustertest.Map{"init": clustertest.Map{"generateType": "init"}}}}), nothing, "init configuration"},
		"etcd was started":             {tcp(clustertest.Map{"status": clustertest.Map{"bootstrapped": true}}), nothing, ""},
		"the cluster is there":         {tcp(clustertest.Map{"status": clustertest.Map{"initialized": true}}), nothing, ""},
		"as many as replicas":          {tcp(clustertest.Map{"spec": clustertest.Map{"replicas": 4}}), nothing, ""},
		"no replicas":                  {tcp(clustertest.Map{"spec": clustertest.Map{"replicas": 0}}), nothing, ""},
		"the provider wants none away": {tcp(clustertest.Map{"status": clustertest.Map{"conditions": []any{}}}), nothing, ""},
		"the provider is behind": {func(w surplusWorld) {
			w.replacing()
			w.tcp(clustertest.Map{"metadata": clustertest.Map{"generation": 3},
				"status": clustertest.Map{"observedGeneration": 2}})
		}, nothing, ""},
		"the control plane is deleted": {tcp(deleting), nothing, ""},
		"the control plane rests":      {tcp(resting), nothing, ""},
		"the cluster is deleted":       {cluster(deleting), nothing, ""},
		"the cluster rests":            {cluster(resting), nothing, ""},
		"the cluster is paused":        {cluster(clustertest.Map{"spec": clustertest.Map{"paused": true}}), nothing, ""},
		"one is being taken away":      {machine("m1", deleting), nothing, ""},

		"the number is changed meanwhile": {nothing, tcp(clustertest.Map{"spec": clustertest.Map{"replicas": 4}}), ""},
		"etcd is started meanwhile": {nothing, func(w surplusWorld) { w.talos.data = []string{"127.0.1.1"} },
			"none is deleted, because m1 has data"},
		"one falls silent meanwhile": {nothing, func(w surplusWorld) { w.talos.silent = []string{"127.0.1.1"} },
			"once Talos says on m1"},
		"one is taken away meanwhile": {nothing, machine("m1", deleting), ""},
		"one is made anew meanwhile": {nothing, func(w surplusWorld) {
			w.Environment.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4")
			w.machine(4)
		}, ""},
		"another is made meanwhile": {nothing, func(w surplusWorld) { w.machine(5) }, ""},
		"it was the last one that differed": {nothing,
			tcp(clustertest.Map{"status": clustertest.Map{"conditions": []any{resizing, rollingOut}}}), "seem to be as wanted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSurplus(t)
			tt.change(w)
			_, keeps, err := w.look(t, func() { tt.between(w) })
			if err != nil || tt.keeps != "" && !strings.Contains(keeps, tt.keeps) {
				t.Errorf("it says %q, %v, want %q", keeps, err, tt.keeps)
			}
			if got := w.left(); got != "m1 m2 m3 m4" {
				t.Errorf("%s are left", got)
			}
		})
	}
}

// TestSurplusMustStand: the same surplus must have been seen for some seconds.
func TestSurplusMustStand(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	p := w.watcher()
	for range 3 {
		// and another is made: it is not the same surplus
		w.Environment.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4")
		w.machine(4)
		p.since = p.since.Add(-surplusStands)
		if busy, _, err := p.look(t.Context(), t.Logf, w.see(t)); !busy || err != nil {
			t.Fatalf("busy: %v, %v", busy, err)
		}
		if got := w.left(); got != "m1 m2 m3 m4" {
			t.Errorf("%s are left at once", got)
		}
	}
}

// TestSurplusOneAtATime: while the one that was taken away goes, it is taken care of.
func TestSurplusOneAtATime(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	p := w.watcher()
	p.going = w.Environment.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4").GetUID()
	w.Environment.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4",
		clustertest.Map{"metadata": clustertest.Map{"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"x"}}})
	if busy, _, err := p.look(t.Context(), t.Logf, w.see(t)); !busy || err != nil {
		t.Errorf("busy: %v, %v", busy, err)
	}
	w.Environment.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4")
	if busy, _, err := p.look(t.Context(), t.Logf, w.see(t)); busy || err != nil {
		t.Errorf("busy: %v, %v", busy, err)
	}
}

// TestSurplusGoesByItsUID: a Machine that was created again under the name, however late, is another.
func TestSurplusGoesByItsUID(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	s := w.see(t)
	machines := surplusOf(s)
	old := machines[3].DeepCopy()
	old.SetUID("of the one before")
	if err := w.watcher().take(t.Context(), t.Logf, s, machines, old); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
	if got := w.left(); got != "m1 m2 m3 m4" {
		t.Errorf("%s are left", got)
	}
}

// TestSurplusDoesNotEndTheWait: what is terminal of a Machine that goes anyway does not count.
func TestSurplusDoesNotEndTheWait(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	w.serverless("m4")
	w.Environment.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m4",
		clustertest.Map{"status": clustertest.Map{"failureReason": "CreateError", "failureMessage": "the project's limit"}})
	if s := w.see(t); why.Explain(s).Terminal(time.Time{}) == nil {
		t.Fatal("nothing is terminal")
	}
	w.waitUntilLeft(t, "m1 m2 m3")
}

// TestSurplusOfSilentServers: what else keeps the cluster counts once servers have been silent for long, not at once.
func TestSurplusOfSilentServers(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	w.talos.silent = []string{"127.0.1.2"}
	p := w.watcher()
	look := func(busy bool) {
		t.Helper()
		got, keeps, err := p.look(t.Context(), t.Logf, w.see(t))
		if got != busy || err != nil || !strings.Contains(keeps, "m2") {
			t.Fatalf("busy: %v, %q, %v", got, keeps, err)
		}
	}
	look(true)
	p.asked = p.asked.Add(-surplusSilence)
	look(false)

	seen := w.see(t)
	w.Environment.Management.Remove(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
	if busy, _, err := p.look(t.Context(), t.Logf, seen); !busy || err == nil {
		t.Errorf("a read that fails: busy: %v, %v", busy, err)
	}
}

// TestSurplusIsNotFoughtFor: what makes Machines again and again is for a person to find.
func TestSurplusIsNotFoughtFor(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	p := w.watcher()
	for i := 1; ; i++ {
		if _, _, err := p.look(t.Context(), t.Logf, w.see(t)); err != nil {
			t.Fatal(err)
		}
		p.since = p.since.Add(-surplusStands)
		_, _, err := p.look(t.Context(), t.Logf, w.see(t))
		var end *wait.FinalError
		switch {
		case i <= 2*3 && err == nil && w.left() == "m1 m2 m3":
			w.machine(4)
			continue
		case i != 2*3+1 || !errors.As(err, &end) || !strings.Contains(err.Error(), "6 Machines of the control plane were "+
			"deleted, and there are still 4 for 3 replicas"):
			t.Errorf("the %dth time: %s are left, %v", i, w.left(), err)
		}
		return
	}
}

// waitUntilLeft waits for the control plane until these Machines are left, and tells what was said.
func (w surplusWorld) waitUntilLeft(t *testing.T, machines string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var said []string
	say := func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
		if w.left() == machines {
			cancel()
		}
	}
	if _, err := w.b.runControlPlane(ctx, say, Management{Kubeconfig: platform.ManagementKubeconfig},
		w.cluster); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if got := w.left(); got != machines {
		t.Errorf("%s are left", got)
	}
	return strings.Join(said, "\n")
}

// TestWaitTakesASurplusAway is what the crash suite found: the provider has made a Machine too many, and neither starts
// etcd nor takes it away. The wait says so, takes it away, and waits for what it always waits for.
func TestWaitTakesASurplusAway(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	all := w.waitUntilLeft(t, "m1 m2 m3")
	for _, want := range []string{"it has 4 Machines for 3 replicas, and starts etcd with exactly 3", "deleting Machine",
		"m4, server m4: the control plane has 4 Machines for 3 replicas"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said in\n%s", want, all)
		}
	}
}
