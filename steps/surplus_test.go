package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/talos"
)

// emptyTalos are servers without an etcd, but for those that say otherwise.
type emptyTalos struct {
	healthyTalos
	data   []string // addresses of those that have data of etcd
	silent []string
}

func (e *emptyTalos) HasEtcdData(_ context.Context, r talos.Route) (bool, error) {
	if slices.Contains(e.silent, r.Endpoint) {
		return false, errors.New("connection refused")
	}
	return slices.Contains(e.data, r.Endpoint), nil
}

func (*emptyTalos) Ask(context.Context, string) (talos.Node, error) {
	return talos.Node{Version: "v1.12.2", Etcd: "Preparing"}, nil
}

var (
	resizing   = object{"type": "Resized", "status": "False", "reason": "ScalingDown", "severity": "Warning"}
	rollingOut = object{"type": "MachinesSpecUpToDate", "status": "False", "reason": "RollingUpdateInProgress", "severity": "Warning"}
)

// surplusWorld has four Machines of a control plane of three, m1 the oldest, on servers 127.0.1.1 to 4; etcd was never started.
type surplusWorld struct {
	*world
	b       *bootstrapper
	mgmt    *kube.Cluster
	cluster Cluster
	talos   *emptyTalos
}

func newSurplus(t *testing.T) surplusWorld {
	t.Helper()
	w, b, mgmt, c := stuck(t)
	etcd := &emptyTalos{}
	b.tools.Talos = func([]byte) (TalosClient, error) { return etcd, nil }
	w.mgmt.Put(kubetest.Object(capi, "Cluster", Namespace, "k8s", object{}))
	w.mgmt.Remove(caph, "HetznerCluster", Namespace, "k8s")
	w.mgmt.Put(kubetest.Object("v1", "Secret", Namespace, "k8s-talosconfig", object{"data": object{"talosconfig": w.talosconfig}}))
	w.mgmt.Change(cacpt, "TalosControlPlane", Namespace, "k8s-control-plane", object{"status": object{"conditions": []any{resizing}}})
	var servers []schema.Server
	all := surplusWorld{w, b, mgmt, c, etcd}
	for i := 1; i <= 4; i++ {
		all.machine(i)
		servers = append(servers, schema.Server{ID: int64(i), Name: fmt.Sprintf("m%d", i), Status: "running", Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	}
	w.hetzner.SetServers(servers...)
	return all
}

// machine makes the Machine of a number, and its server.
func (w surplusWorld) machine(i int) {
	name, address := fmt.Sprintf("m%d", i), fmt.Sprintf("127.0.1.%d", i)
	meta := object{"labels": object{clusterNameLabel: "k8s", controlPlaneLabel: ""}, "creationTimestamp": time.Date(2026, 5, 4, 12, 0, i, 0, time.UTC).Format(time.RFC3339)}
	w.world.mgmt.Put(kubetest.Object(capi, "Machine", Namespace, name, object{"metadata": meta,
		"spec":   object{"infrastructureRef": object{"name": name}, "providerID": fmt.Sprintf("hcloud://%d", i)},
		"status": object{"addresses": []any{object{"type": "ExternalIP", "address": address}}}}))
	w.world.mgmt.Put(kubetest.Object(caph, "HCloudMachine", Namespace, name, object{"metadata": meta,
		"spec": object{"providerID": fmt.Sprintf("hcloud://%d", i)}, "status": object{"instanceState": "running"}}))
}

// left are the Machines that are left.
func (w surplusWorld) left() string {
	var names []string
	for i := 1; i <= 4; i++ {
		if name := fmt.Sprintf("m%d", i); w.world.mgmt.Get(capi, "Machine", Namespace, name) != nil {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// look looks twice, the second time when the surplus has stood long enough; between may change the world.
func (w surplusWorld) look(t *testing.T, between func()) (bool, error) {
	t.Helper()
	p := surplus{b: w.b, mgmt: w.mgmt, cluster: w.cluster}
	s, _ := w.b.situation(t.Context(), w.mgmt, w.cluster.watched())
	taken, err := p.look(t.Context(), t.Logf, s)
	if w.left() != "m1 m2 m3 m4" {
		t.Fatalf("at the first look it takes one away: %s are left", w.left())
	}
	if err != nil || !taken {
		return taken, err
	}
	s, _ = w.b.situation(t.Context(), w.mgmt, w.cluster.watched())
	p.since = p.since.Add(-surplusStands)
	between()
	return p.look(t.Context(), t.Logf, s)
}

func TestSurplusIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(surplusWorld)
		left   string
	}{
		"the newest": {func(surplusWorld) {}, "m1 m2 m3"},
		"one without a server": {func(w surplusWorld) {
			w.world.mgmt.Change(caph, "HCloudMachine", Namespace, "m2", object{"spec": object{"providerID": ""}})
			w.world.mgmt.Change(capi, "Machine", Namespace, "m2", object{"spec": object{"providerID": ""}, "status": object{"addresses": []any{}}})
		}, "m1 m3 m4"},
		"the oldest of those that are replaced": {func(w surplusWorld) {
			w.world.mgmt.Change(cacpt, "TalosControlPlane", Namespace, "k8s-control-plane", object{"status": object{"conditions": []any{resizing, rollingOut}}})
		}, "m2 m3 m4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSurplus(t)
			tt.change(w)
			if taken, err := w.look(t, func() {}); err != nil || !taken {
				t.Errorf("taken: %v, %v", taken, err)
			}
			if got := w.left(); got != tt.left {
				t.Errorf("%s are left, want %s", got, tt.left)
			}
		})
	}
}

func TestSurplusIsLeftAlone(t *testing.T) {
	t.Parallel()
	tcp := func(change object) func(surplusWorld) {
		return func(w surplusWorld) {
			w.world.mgmt.Change(cacpt, "TalosControlPlane", Namespace, "k8s-control-plane", change)
		}
	}
	deleting := object{"metadata": object{"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"x"}}}
	resting := object{"metadata": object{"annotations": object{pausedAnnotation: ""}}}
	nothing := func(surplusWorld) {}
	for name, tt := range map[string]struct {
		change, between func(surplusWorld)
	}{
		"one has data of etcd":         {func(w surplusWorld) { w.talos.data = []string{"127.0.1.2"} }, nothing},
		"one does not answer":          {func(w surplusWorld) { w.talos.silent = []string{"127.0.1.2"} }, nothing},
		"etcd was started":             {tcp(object{"status": object{"bootstrapped": true}}), nothing},
		"the cluster is there":         {tcp(object{"status": object{"initialized": true}}), nothing},
		"as many as replicas":          {tcp(object{"spec": object{"replicas": 4}}), nothing},
		"no replicas":                  {tcp(object{"spec": object{"replicas": 0}}), nothing},
		"the provider wants none away": {tcp(object{"status": object{"conditions": []any{rollingOut}}}), nothing},
		"the control plane is deleted": {tcp(deleting), nothing},
		"the control plane rests":      {tcp(resting), nothing},
		"the cluster is deleted":       {func(w surplusWorld) { w.world.mgmt.Change(capi, "Cluster", Namespace, "k8s", deleting) }, nothing},
		"the cluster rests":            {func(w surplusWorld) { w.world.mgmt.Change(capi, "Cluster", Namespace, "k8s", resting) }, nothing},
		"the cluster is paused": {func(w surplusWorld) {
			w.world.mgmt.Change(capi, "Cluster", Namespace, "k8s", object{"spec": object{"paused": true}})
		}, nothing},
		"one is being taken away":         {func(w surplusWorld) { w.world.mgmt.Change(capi, "Machine", Namespace, "m1", deleting) }, nothing},
		"the number is changed meanwhile": {nothing, tcp(object{"spec": object{"replicas": 4}})},
		"etcd is started meanwhile":       {nothing, func(w surplusWorld) { w.talos.data = []string{"127.0.1.1"} }},
		"one falls silent meanwhile":      {nothing, func(w surplusWorld) { w.talos.silent = []string{"127.0.1.1"} }},
		"one is made anew meanwhile": {nothing, func(w surplusWorld) {
			old := w.world.mgmt.Get(capi, "Machine", Namespace, "m4").DeepCopy()
			w.world.mgmt.Remove(capi, "Machine", Namespace, "m4")
			old.SetUID("another")
			w.world.mgmt.Put(old)
		}},
		"another is made meanwhile": {nothing, func(w surplusWorld) {
			w.world.mgmt.Put(kubetest.Object(capi, "Machine", Namespace, "m5", object{"metadata": object{"labels": object{clusterNameLabel: "k8s", controlPlaneLabel: ""}}}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSurplus(t)
			tt.change(w)
			if _, err := w.look(t, func() { tt.between(w) }); err != nil && !apierrors.IsConflict(err) {
				t.Error(err)
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
	p := surplus{b: w.b, mgmt: w.mgmt, cluster: w.cluster}
	for range 3 {
		w.world.mgmt.Remove(capi, "Machine", Namespace, "m4") // and another is made: it is not the same surplus
		w.machine(4)
		p.since = p.since.Add(-surplusStands)
		s, _ := w.b.situation(t.Context(), w.mgmt, w.cluster.watched())
		if taken, err := p.look(t.Context(), t.Logf, s); !taken || err != nil {
			t.Fatalf("taken: %v, %v", taken, err)
		}
		if got := w.left(); got != "m1 m2 m3 m4" {
			t.Errorf("%s are left at once", got)
		}
	}
}

// TestWaitTakesASurplusAway is what the crash suite found: the provider has made a Machine too many, and neither starts etcd nor takes
// it away. The wait says so, takes it away, and waits for what it always waits for.
func TestWaitTakesASurplusAway(t *testing.T) {
	t.Parallel()
	w := newSurplus(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var said []string
	say := func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
		if w.left() == "m1 m2 m3" {
			cancel()
		}
	}
	if _, err := w.b.waitControlPlane(ctx, say, Management{Kubeconfig: managementFile}, w.cluster); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if got := w.left(); got != "m1 m2 m3" {
		t.Errorf("%s are left", got)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"it has 4 Machines for 3 replicas and starts etcd with exactly 3", "deleting Machine", "m4, server m4: the control plane has 4 Machines for 3 replicas"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said in\n%s", want, all)
		}
	}
}
