package steps

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/platform"
)

// movedByClusterctl is how many writes clusterctl's mover needs for nine objects.
const movedByClusterctl = 9 + 3*9

// clusterctlMoves makes so many writes of clusterctl's mover, which older releases of Slipway called, with what they
// did beside it: each object goes into the copy before it is created. At the source the mark replaces all annotations,
// and the finalizers go when the object is being deleted already.
func (w *pivotWorld) clusterctlMoves(t *testing.T, writes int) {
	t.Helper()
	c, err := connect.Cluster(w.b.tools, platform.ManagementKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	inv, err := capi.ReadInventory(t.Context(), c, config.DefaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	order := []string{"Cluster", "HetznerCluster", "TalosControlPlane", "Machine", "HCloudMachine", "Secret"}
	objects := slices.Clone(inv.Moved)
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int {
		return slices.Index(order, a.GetKind()) - slices.Index(order, b.GetKind())
	})
	var calls []func()
	for _, source := range objects {
		calls = append(calls, func() {
			if err := records.PivotCopyOf(w.b.tools).Put(&source); err != nil {
				t.Fatal(err)
			}
			copied := source.DeepCopy()
			unstructured.RemoveNestedField(copied.Object, "status")
			w.target.Put(copied)
		})
	}
	slices.Reverse(objects)
	for _, o := range objects {
		calls = append(calls, func() {
			o.SetAnnotations(map[string]string{capi.DeleteForMove: ""})
			w.source.Put(&o)
		}, func() {
			now := metav1.Now()
			o.SetDeletionTimestamp(&now)
			w.source.Put(&o)
		}, func() { w.source.Remove(o.GetAPIVersion(), o.GetKind(), config.DefaultNamespace, o.GetName()) })
	}
	for _, call := range calls[:writes] {
		call()
	}
}

// TestPivotEndsTheMoveOfAnOlderRelease lets an older release begin a pivot and die after each of clusterctl's writes.
func TestPivotEndsTheMoveOfAnOlderRelease(t *testing.T) {
	for writes := range movedByClusterctl + 1 {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			t.Parallel()
			w := newPivotWorld(t)
			was := inventoryOf(t, w, platform.ManagementKubeconfig)
			w.lives = 2 // the pause and the label, as every release begins
			if _, err := w.pivot(t); !errors.Is(err, errKilled) {
				t.Fatal(err)
			}
			w.clusterctlMoves(t, writes)
			w.lives = -1
			mustPivot(t, w)
			w.pivoted(t, was)
		})
	}
}
