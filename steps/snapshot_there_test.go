package steps

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/etcddata"
)

// Another snapshot may lie on the server, as large as the right one: an etcd that is restored twice has snapshots of
// one size.
func TestARestoreUploadsOverAnotherSnapshotOfTheSameSize(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	const address = "127.0.1.0"
	w.etcd.uploaded[address] = strings.ToUpper(theSnapshot)
	target := RecoveryTarget{Server: "k8s-control-plane-0"}
	for range 2 { // once is enough: the server may be restoring what lies on it
		if _, err := (etcdStep{w.r}).uploadSnapshot(t.Context(), w.say, m, c, target); err != nil {
			t.Fatal(err)
		}
	}
	if w.etcd.uploaded[address] != theSnapshot || !slices.Equal(w.etcd.calls, []string{"upload " + address}) {
		t.Errorf("the server has %q, after %v", w.etcd.uploaded[address], w.etcd.calls)
	}
}

func TestARecoveryOfTheQuorumUploadsOverAnotherSnapshotOfTheSameSize(t *testing.T) {
	survey := etcddata.Survey{Servers: []string{cp0, cp1, cp2}, Survivor: cp1, Target: cp0}
	e := &brokenEtcd{old: map[string]uint64{cp1: 5}}
	_, q := quorumWorld(t, e)
	snapshot, err := snapshotStep{q}.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	e.uploaded[cp0] = "snapshot of " + cp2
	for range 2 {
		if _, err := (recoverStep{q}).uploadSnapshot(t.Context(), clustertest.Silent, survey, snapshot); err != nil {
			t.Fatal(err)
		}
	}
	if want := "snapshot of " + cp1; e.uploaded[cp0] != want || !slices.Equal(e.calls, []string{want, "upload to " + cp0}) {
		t.Errorf("%s has %q, after %v", cp0, e.uploaded[cp0], e.calls)
	}
}
