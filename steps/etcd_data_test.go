package steps

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/etcddata"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/talos"
)

// Servers that boot are told as such by a diagnosis.
func TestADiagnosisTellsServersThatBoot(t *testing.T) {
	f := facts{cluster: "k8s", now: time.Now(), servers: []hetzner.Server{{Name: cp0}}, beside: besideNone, whose: errors.New("nobody tells"),
		apiErr: errors.New("connection refused"), nodes: []etcddata.Node{{Server: cp0, Err: fmt.Errorf("%w: it waits", etcddata.ErrNotMounted)}}}
	d := f.judge()
	if seen := strings.Join(d.Seen, "\n"); !strings.Contains(d.Sentence, "are booting") || !strings.Contains(seen, "Talos answers; its disk may not be mounted yet") {
		t.Errorf("%s\n%s", d.Sentence, seen)
	}
	f.nodes[0].Err = errors.New("connection refused")
	if d := f.judge(); d.Disaster != Unclear || !strings.Contains(d.Sentence, "nor Talos answers") {
		t.Errorf("of silent ones: %+v", d)
	}
}

// A server that boots shows no data of etcd before its disk is mounted, whatever lies on that.
func TestNoEtcdIsMadeWhileADiskMayNotBeMounted(t *testing.T) {
	for _, c := range []struct {
		state string
		err   error
		made  bool
	}{
		{state: "Waiting"},
		{state: "Starting"},
		{state: ""},
		{state: "Running"}, // it has just begun
		{err: errors.New("the services are not there yet")},
		{state: etcddata.Preparing, made: true},
		{state: etcddata.Failed, made: true}, // it has waited for half an hour
	} {
		w := newRestoreWorld(t)
		m, cluster := w.prepare(t)
		if !c.made {
			w.r.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
		}
		w.etcd.state = func(r talos.Route) (string, error) {
			switch {
			case r.Endpoint == "127.0.1.1":
				return c.state, c.err
			case w.etcd.data[r.Endpoint]:
				return "Running", nil
			}
			return etcddata.Preparing, nil
		}
		_, err := etcdStep{w.r}.bootstrapRecovered(t.Context(), w.say, m, cluster, RecoveryTarget{Server: "k8s-control-plane-0"})
		if made := len(w.etcd.calls) > 0; made != c.made || (err == nil) != c.made {
			t.Errorf("with a server whose etcd is %q (%v): %v, and was asked %v", c.state, c.err, err, w.etcd.calls)
		}
		if !c.made && !strings.Contains(err.Error(), "k8s-control-plane-1") {
			t.Errorf("with a server whose etcd is %q (%v): %v", c.state, c.err, err)
		}
	}
}

func TestTheQuorumIsNotRecoveredWhileADiskMayNotBeMounted(t *testing.T) {
	survey := etcddata.Survey{Servers: []string{cp0, cp1, cp2}, Survivor: cp1, Target: cp0}
	e := &brokenEtcd{old: map[string]uint64{cp1: 5}, state: map[string]string{cp2: "Waiting"}}
	_, q := quorumWorld(t, e)
	snapshot, err := snapshotStep{q}.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	if _, err := (recoverStep{q}).clearOthers(t.Context(), clustertest.Silent, survey, snapshot); err == nil || !strings.Contains(err.Error(), cp2+": its disk may not be mounted yet") {
		t.Errorf("the servers count as empty: %v", err)
	}
	if _, err := (recoverStep{q}).bootstrapRecovered(t.Context(), clustertest.Silent, survey, snapshot); err == nil || len(e.calls) != 1 {
		t.Errorf("an etcd is made: %v, after %v", err, e.calls)
	}
}
