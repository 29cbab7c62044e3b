package replace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
)

// TestOneMachineIsReplacedAtATime has the first of three Machines being deleted: its member of etcd still votes, and
// is healthy.
func TestOneMachineIsReplacedAtATime(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-0",
		clustertest.Map{"metadata": clustertest.Map{
			"deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"machine.cluster.x-k8s.io"},
		}})
	writes := len(w.Management.Writes())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // else it would wait for another Machine
	defer cancel()
	_, err := NewReplacer(w.Config(), w.Tools()).Replace(ctx, func(string, ...any) {}, "k8s-control-plane-1")
	refused := &RefusedError{}
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "k8s-control-plane-0: its Machine is being deleted") {
		t.Errorf("got %v", err)
	}
	if wrote := w.Management.Writes()[writes:]; len(wrote) > 0 {
		t.Errorf("it wrote %v", wrote)
	}
}

// TestASurplusMachineHasNoSuccessor has a fourth Machine of a control plane of three, as a rolling update that cannot
// go on leaves it.
func TestASurplusMachineHasNoSuccessor(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-3", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}},
		"spec":     clustertest.Map{"infrastructureRef": clustertest.Map{"name": "k8s-control-plane-3"}},
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done, err := NewReplacer(w.Config(), w.Tools()).Replace(ctx, func(string, ...any) {}, "k8s-control-plane-3")
	if err != nil {
		t.Fatal(err)
	}
	told := done.String()
	if len(done.New) > 0 || strings.Contains(told, "[") || !strings.Contains(told, "none in its place") ||
		!strings.Contains(told, "k8s-control-plane-0, k8s-control-plane-1, k8s-control-plane-2") {
		t.Errorf("%s, %+v", told, done)
	}
}

// TestTheSuccessorOfADeletedMachineIsNamed has a Machine deleted with kubectl, and the one in its place made before the
// command was run.
func TestTheSuccessorOfADeletedMachineIsNamed(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	const deleted = "2026-05-04T12:00:00Z"
	for name, created := range map[string]string{"older": "2026-05-04T11:00:00Z", "newer": deleted} {
		w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, clustertest.Map{
			"metadata": clustertest.Map{"creationTimestamp": created, "labels": clustertest.Map{capi.ClusterNameLabel: "k8s",
				capi.ControlPlaneLabel: ""}},
			"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": name}},
		}))
	}
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, "k8s-control-plane-0",
		clustertest.Map{"metadata": clustertest.Map{
			"deletionTimestamp": deleted, "finalizers": []any{"machine.cluster.x-k8s.io"},
		}})
	o := NewReplacer(w.Config(), w.Tools())
	manager, _, err := situation.ManagingCluster(t.Context(), o.cfg, o.tools, o.sources, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.replacement(t.Context(), manager, "k8s-control-plane-0")
	if err != nil || slices.Contains(r.Before, "newer") || !slices.Contains(r.Before, "older") {
		t.Errorf("%v, %v", r.Before, err)
	}
	r.New = []string{"newer"}
	if told := r.String(); told != "Machine k8s-control-plane-0 is replaced by newer" {
		t.Error(told)
	}
}

// A Machine whose bootstrap configuration cannot be created is deleted without asking etcd, which need not even exist.
func TestAMachineWithoutBootstrapConfigurationIsDeleted(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	labels := clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4", clustertest.Map{
		"metadata": clustertest.Map{"labels": labels},
		"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": "m4"},
			"bootstrap": clustertest.Map{"configRef": clustertest.Map{"name": "m4"}}},
	}))
	w.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, "m4",
		clustertest.Map{"metadata": clustertest.Map{"labels": labels}}))
	w.Management.Put(kubetest.Object(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, "m4", clustertest.Map{
		"metadata": clustertest.Map{"labels": labels},
		"spec": clustertest.Map{"generateType": "controlplane", "talosVersion": "v1.12",
			"strategicPatches": []any{"machine: {nonsense: true}"}}, // which the control plane does not have any more
		"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "DataSecretAvailable", "status": "False",
			"severity": "Error", "reason": "DataSecretGenerationFailed", "message": "unknown keys",
			"lastTransitionTime": "2026-05-04T12:00:00Z"}}},
	}))
	w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		clustertest.Map{"status": clustertest.Map{"bootstrapped": false, "initialized": false}})
	const living = "k8s-control-plane-0"
	w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, living,
		clustertest.Map{"spec": clustertest.Map{"bootstrap": clustertest.Map{"configRef": clustertest.Map{"name": living}}}})
	w.Management.Put(kubetest.Object(clustertest.CABPT, "TalosConfig", config.DefaultNamespace, living,
		clustertest.Map{"metadata": clustertest.Map{"labels": labels}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	replacer := NewReplacer(w.Config(), w.Tools())
	machines := func() int {
		n := 0
		for _, name := range []string{"m4", living, "k8s-control-plane-1", "k8s-control-plane-2"} {
			if w.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name) != nil {
				n++
			}
		}
		return n
	}
	if r, err := replacer.Replace(ctx, t.Logf, "m4"); err != nil || r.Machine != "m4" || machines() != 3 {
		t.Errorf("%+v, %v; %d Machines are left", r, err, machines())
	}
	refused := &RefusedError{}
	if _, err := replacer.Replace(ctx, t.Logf, living); !errors.As(err, &refused) || machines() != 3 {
		t.Errorf("one with a server: %v; %d Machines are left", err, machines())
	}
}

// TestAnUnnamedNodeGoesWithItsMachine: a server that did not learn its hostname is a node of another name, which nothing
// connects with its Machine; it is removed when the Machine is gone. The wait names it.
func TestAnUnnamedNodeGoesWithItsMachine(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, "m4", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}},
		"spec":     clustertest.Map{"infrastructureRef": clustertest.Map{"name": "k8s-control-plane-3"}},
		"status":   clustertest.Map{"addresses": []any{clustertest.Map{"type": "InternalIP", "address": "10.10.64.9"}}},
	}))
	w.Workload.Put(kubetest.Object("v1", "Node", "", "talos-1a2-b3c", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ControlPlaneRole: ""}},
		"status": clustertest.Map{"nodeInfo": clustertest.Map{"kubeletVersion": config.Defaults().KubernetesVersion},
			"addresses": []any{clustertest.Map{"type": "InternalIP", "address": "10.10.64.9"}}}}))
	o := NewReplacer(w.Config(), w.Tools())
	manager, _, err := situation.ManagingCluster(t.Context(), o.cfg, o.tools, o.sources, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	workload, err := o.tools.Connect(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	now, err := rollout.Read(t.Context(), o.cfg, o.tools, manager, workload)
	if missing := strings.Join(now.Missing(o.cfg.NetworkCIDR), "; "); err != nil || !strings.Contains(missing,
		"talos-1a2-b3c: is the server k8s-control-plane-3, and chose its hostname by itself") ||
		!strings.Contains(missing, "replace-machine m4") {
		t.Errorf("missing %q, %v", missing, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := o.Replace(ctx, t.Logf, "m4"); err != nil {
		t.Fatal(err)
	}
	if w.Workload.Get("v1", "Node", "", "talos-1a2-b3c") != nil {
		t.Error("its node is left")
	}
}

// A PodDisruptionBudget that allows no eviction is named before anything is deleted, where the node lives: one that does
// not is not drained.
func TestAMachineThatCannotBeDrainedIsNotDeleted(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	const name = "k8s-control-plane-1"
	w.Workload.Put(kubetest.Object("policy/v1", "PodDisruptionBudget", "shop", "web", clustertest.Map{
		"spec": clustertest.Map{"selector": clustertest.Map{"matchLabels": clustertest.Map{"app": "web"}}},
		"status": clustertest.Map{"expectedPods": 1, "disruptionsAllowed": 0, "currentHealthy": 1,
			"desiredHealthy": 1}}))
	w.Workload.Put(kubetest.Object("v1", "Pod", "shop", "web-1", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{"app": "web"}}, "spec": clustertest.Map{"nodeName": name},
		"status": clustertest.Map{"phase": "Running"}}))
	writes := len(w.Management.Writes())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	replacer := NewReplacer(w.Config(), w.Tools())
	_, err := replacer.Replace(ctx, func(string, ...any) {}, name)
	refused := &RefusedError{}
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "PodDisruptionBudget shop/web (1 of its Pods are healthy "+
		"and 1 must stay: web-1 on "+name+")") {
		t.Errorf("got %v", err)
	}
	if wrote := w.Management.Writes()[writes:]; len(wrote) > 0 {
		t.Errorf("it wrote %v", wrote)
	}
	w.Workload.Change("v1", "Node", "", name, clustertest.Map{"status": clustertest.Map{"conditions": []any{
		clustertest.Map{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}}}})
	workload, err := kube.Connect(w.Workload.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if err := drainable(ctx, workload, Replacement{Machine: name, Server: name}); err != nil {
		t.Errorf("a node that does not live is not drained: %v", err)
	}
}

// stoppedTalos is healthy but for the etcd of one server.
type stoppedTalos struct {
	clustertest.HealthyTalos
	address string
}

func (s stoppedTalos) Ask(ctx context.Context, r talos.Route) (talos.Node, error) {
	if r.Endpoint == s.address {
		return talos.Node{Version: config.Defaults().TalosVersion, Etcd: "Failed"}, nil
	}
	return s.HealthyTalos.Ask(ctx, r)
}

// While the etcd of another server is stopped, the control plane provider creates none in the place of this one.
func TestAStoppedMemberGoesFirst(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return stoppedTalos{address: "127.0.1.2"}, nil }
	writes := len(w.Management.Writes())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	replacer := NewReplacer(w.Config(), tools)
	_, err := replacer.Replace(ctx, func(string, ...any) {}, "k8s-control-plane-1")
	refused := &RefusedError{}
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "k8s-control-plane-2: its etcd is stopped (Talos: Failed)") ||
		!strings.Contains(refused.Why, "bootstrap replace-machine k8s-control-plane-2") {
		t.Errorf("got %v", err)
	}
	if wrote := w.Management.Writes()[writes:]; len(wrote) > 0 {
		t.Errorf("it wrote %v", wrote)
	}
	manager, err := kube.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	one := Replacement{Machine: "k8s-control-plane-2", Server: "k8s-control-plane-2"}
	if err := replacer.expendable(ctx, func(string, ...any) {}, manager, one); err != nil {
		t.Errorf("the stopped one itself: %v", err)
	}
}

// restlessTalos is healthy, but the etcd of one server does not call itself so at first.
type restlessTalos struct {
	clustertest.HealthyTalos
	addresses []string
	unwell    *atomic.Int32 // so many answers more
}

func (s restlessTalos) Ask(ctx context.Context, r talos.Route) (talos.Node, error) {
	node, err := s.HealthyTalos.Ask(ctx, r)
	node.Healthy = node.Healthy && (!slices.Contains(s.addresses, r.Endpoint) || s.unwell.Add(-1) < 0)
	return node, err
}

// A member that is unwell for a moment is asked again before the replacement is refused.
func TestAMemberThatIsUnwellIsAskedAgain(t *testing.T) {
	w := clustertest.New(t)
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	manager, err := kube.Connect(w.Management.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	restless := restlessTalos{addresses: []string{"127.0.1.2", "10.10.64.4"}, unwell: &atomic.Int32{}}
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return restless, nil }
	replacer := NewReplacer(w.Config(), tools)
	one := Replacement{Machine: "k8s-control-plane-1", Server: "k8s-control-plane-1"}

	restless.unwell.Store(2) // one by each address
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	if err := replacer.expendable(t.Context(), say, manager, one); err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 || !strings.Contains(said[0], "waiting for etcd to keep its quorum without k8s-control-plane-1") ||
		!strings.Contains(said[0], "does not call itself healthy") || !strings.Contains(said[1], "etcd keeps its quorum") {
		t.Errorf("it said %q", said)
	}

	var asked atomic.Int32 // for the Machines
	w.Management.Fail = func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/machines") && asked.Add(1) == 1 {
			return http.StatusInternalServerError, "etcdserver: no leader"
		}
		return 0, ""
	}
	if err := replacer.expendable(t.Context(), t.Logf, manager, one); err != nil {
		t.Errorf("after the API server was unwell: %v", err)
	}

	restless.unwell.Store(math.MaxInt32)
	replacer.settleWithin = time.Second
	err = replacer.expendable(t.Context(), t.Logf, manager, one)
	refused := &RefusedError{}
	if !errors.As(err, &refused) || !strings.Contains(refused.Why, "etcd would lose its quorum") ||
		!strings.Contains(refused.Why, "does not call itself healthy") {
		t.Errorf("got %v", err)
	}
}
