package environment

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/slot"
)

func newState(t *testing.T, path string) *folder.State {
	t.Helper()
	state, err := folder.LoadState(path)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestClustersHaveRangesOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	state := newState(t, path)
	if err := state.Update(func(d *folder.Data) error { d.Slot = slot.First; return nil }); err != nil {
		t.Fatal(err)
	}
	for i := range slot.MostClusters {
		for range 2 {
			if err := admit(state, fmt.Sprint("c", i), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := admit(state, "more", nil)
	if err == nil || !strings.Contains(err.Error(), "c0, c1") || !strings.Contains(err.Error(), "--lab-dir") {
		t.Errorf("one cluster more than there are ranges for: %v", err)
	}
	for i, c := range newState(t, path).Workload() { // the lab's next start
		if c.Name != fmt.Sprint("c", i) || c.Index != i {
			t.Errorf("cluster %d is %+v", i, c)
		}
	}
	if err := admit(state, "", nil); err == nil {
		t.Error("a cluster without a name was admitted")
	}
}

func TestClustersOfALabThatRecordedNone(t *testing.T) {
	state := newState(t, filepath.Join(t.TempDir(), "state.json"))
	servers := []cloud.Server{{Name: "k8s-1", Labels: map[string]string{"caph-cluster-k8s": "owned", "x": "y"}}}
	for _, name := range []string{"new", "k8s"} {
		if err := admit(state, name, servers); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range state.Workload() {
		if want := map[string]int{"k8s": 0, "new": 1}[c.Name]; c.Index != want {
			t.Errorf("%s has the ranges %d, not %d", c.Name, c.Index, want)
		}
	}
}
