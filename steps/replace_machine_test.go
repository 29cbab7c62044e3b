package steps

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
)

// TestOneMachineIsReplacedAtATime has the first of three Machines being deleted: its member of etcd still votes, and
// is healthy.
func TestOneMachineIsReplacedAtATime(t *testing.T) {
	w := clustertest.New(t)
	if _, err := runTargets(t, w, w.Config(), w.Tools(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Change(clustertest.CAPI, "Machine", config.Namespace, "k8s-control-plane-0",
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
	if _, err := runTargets(t, w, w.Config(), w.Tools(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.Namespace, "k8s-control-plane-3", clustertest.Map{
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
	if _, err := runTargets(t, w, w.Config(), w.Tools(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	const deleted = "2026-05-04T12:00:00Z"
	for name, created := range map[string]string{"older": "2026-05-04T11:00:00Z", "newer": deleted} {
		w.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.Namespace, name, clustertest.Map{
			"metadata": clustertest.Map{"creationTimestamp": created, "labels": clustertest.Map{capi.ClusterNameLabel: "k8s",
				capi.ControlPlaneLabel: ""}},
			"spec": clustertest.Map{"infrastructureRef": clustertest.Map{"name": name}},
		}))
	}
	w.Management.Change(clustertest.CAPI, "Machine", config.Namespace, "k8s-control-plane-0",
		clustertest.Map{"metadata": clustertest.Map{
			"deletionTimestamp": deleted, "finalizers": []any{"machine.cluster.x-k8s.io"},
		}})
	o := NewReplacer(w.Config(), w.Tools())
	manager, _, err := o.managingCluster(t.Context(), func(string, ...any) {})
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
