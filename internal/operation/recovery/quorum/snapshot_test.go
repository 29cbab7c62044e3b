package quorum

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/recoverytest"
)

func TestTheQuorumIsNotRecoveredWhileADiskMayNotBeMounted(t *testing.T) {
	survey := etcdview.Survey{Servers: []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2},
		Survivor: recoverytest.Cp1, Target: recoverytest.Cp0}
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5},
		State: map[string]string{recoverytest.Cp2: "Waiting"}}
	_, q := brokenCluster(t, e)
	snapshot, err := q.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	if _, err := q.clearOthers(t.Context(), clustertest.Silent, survey, snapshot); err == nil ||
		!strings.Contains(err.Error(), recoverytest.Cp2+": its disk may not be mounted yet") {
		t.Errorf("the servers count as empty: %v", err)
	}
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, snapshot); err == nil ||
		len(e.Calls) != 1 {
		t.Errorf("an etcd is made: %v, after %v", err, e.Calls)
	}
}

func TestARecoveryOfTheQuorumUploadsOverAnotherSnapshotOfTheSameSize(t *testing.T) {
	survey := etcdview.Survey{Servers: []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2},
		Survivor: recoverytest.Cp1, Target: recoverytest.Cp0}
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}}
	_, q := brokenCluster(t, e)
	snapshot, err := q.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	e.Uploaded[recoverytest.Cp0] = "snapshot of " + recoverytest.Cp2
	for range 2 {
		if _, err := q.uploadSnapshot(t.Context(), clustertest.Silent, survey, snapshot); err != nil {
			t.Fatal(err)
		}
	}
	if want := "snapshot of " + recoverytest.Cp1; e.Uploaded[recoverytest.Cp0] != want ||
		!slices.Equal(e.Calls, []string{want, "upload to " + recoverytest.Cp0}) {
		t.Errorf("%s has %q, after %v", recoverytest.Cp0, e.Uploaded[recoverytest.Cp0], e.Calls)
	}
}
