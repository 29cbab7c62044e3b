package quorum

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/recoverytest"
	"github.com/slipway-k8s/slipway/platform"
)

func TestAnEtcdThatWorksIsNotRecovered(t *testing.T) {
	for what, e := range map[string]*recoverytest.BrokenEtcd{
		"a member answers": {Old: map[string]uint64{recoverytest.Cp0: 5, recoverytest.Cp1: 5, recoverytest.Cp2: 5},
			Quorum: true},
		"the API answers": {Members: []string{recoverytest.Cp0}},
	} {
		_, q := brokenCluster(t, e)
		if _, err := q.survey(t.Context(), clustertest.Silent); !errors.Is(err, ErrQuorum) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A look chooses the survivor that the recovery would, and writes nothing: no snapshot, no identity, nothing on a
// server.
func TestALookAtABrokenEtcdChangesNothing(t *testing.T) {
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 5, recoverytest.Cp1: 7, recoverytest.Cp2: 6}}
	w, q := brokenCluster(t, e)
	plan, err := newPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	writes, before := w.Writes(), filesIn(t, q.tools.Files)
	looked, err := plan.Inspect(t.Context(), clustertest.Silent)
	if err != nil || looked.Survivor != recoverytest.Cp1 || looked.Target != recoverytest.Cp0 ||
		!slices.Equal(looked.Wipe, []string{recoverytest.Cp0, recoverytest.Cp2}) {
		t.Errorf("%+v, %v", looked, err)
	}
	if w.Writes() != writes || len(e.Calls) > 0 {
		t.Errorf("it wrote %d times, and called %v", w.Writes()-writes, e.Calls)
	}
	if after := filesIn(t, q.tools.Files); !slices.Equal(before, after) {
		t.Errorf("the state folder had %v, and has %v", before, after)
	}
	surveyed, err := q.survey(t.Context(), clustertest.Silent)
	if err != nil || surveyed.Survivor != looked.Survivor || surveyed.Target != looked.Target {
		t.Errorf("the recovery chooses %+v, %v", surveyed, err)
	}
	e.Mu.Lock()
	e.Quorum = true
	e.Mu.Unlock()
	if _, err := plan.Inspect(t.Context(), clustertest.Silent); !errors.Is(err, ErrQuorum) {
		t.Errorf("of an etcd that works: %v", err)
	}
}

// filesIn are the names of what is in a state folder.
func filesIn(t *testing.T, files platform.Files) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(files.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestNoQuorumIsRecoveredBesideARestore(t *testing.T) {
	w, q := brokenCluster(t, &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}})
	w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 7, Name: "slipway-k8s.restore", Type: "spread",
		Labels: map[string]string{
			"slipway-cluster": "k8s", clustertest.ReservedBy: "0123456789abcdef", "slipway-host": "laptop"}})
	var recovering *claims.RecoveringError
	if _, err := q.survey(t.Context(), clustertest.Silent); !errors.As(err, &recovering) ||
		!strings.Contains(err.Error(), "laptop") {
		t.Errorf("%v", err)
	}
}

func TestTheMemberThatKnowsMostIsTheOneToKeep(t *testing.T) {
	all := []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2}
	for _, c := range []struct {
		servers []string
		old     map[string]uint64
		deaf    map[string]bool
		want    etcdview.Survey
	}{
		{all, map[string]uint64{recoverytest.Cp1: 5}, nil,
			etcdview.Survey{Servers: all, Survivor: recoverytest.Cp1, Index: 5, Wipe: nil, Target: recoverytest.Cp0,
				Silent: nil}},
		{all, map[string]uint64{recoverytest.Cp0: 5, recoverytest.Cp1: 7, recoverytest.Cp2: 6}, nil,
			etcdview.Survey{Servers: all, Survivor: recoverytest.Cp1, Index: 7,
				Wipe: []string{recoverytest.Cp0, recoverytest.Cp2}, Target: recoverytest.Cp0, Silent: nil}},
		{all, map[string]uint64{recoverytest.Cp0: 9, recoverytest.Cp2: 6}, nil,
			etcdview.Survey{Servers: all, Survivor: recoverytest.Cp0, Index: 9, Wipe: []string{recoverytest.Cp2},
				Target: recoverytest.Cp1, Silent: nil}},
		{all, map[string]uint64{recoverytest.Cp0: 5, recoverytest.Cp2: 6}, map[string]bool{recoverytest.Cp2: true},
			etcdview.Survey{Servers: all, Survivor: recoverytest.Cp0, Index: 5, Wipe: []string{recoverytest.Cp2},
				Target: recoverytest.Cp1, Silent: []string{recoverytest.Cp2}}},
		{[]string{recoverytest.Cp2}, map[string]uint64{recoverytest.Cp2: 6}, nil,
			etcdview.Survey{Servers: []string{recoverytest.Cp2}, Survivor: recoverytest.Cp2, Index: 6,
				Wipe: []string{recoverytest.Cp2}, Target: recoverytest.Cp2, Silent: nil}},
	} {
		_, q := brokenCluster(t, &recoverytest.BrokenEtcd{Servers: c.servers, Old: c.old, Deaf: c.deaf})
		s, err := q.survey(t.Context(), clustertest.Silent)
		if err != nil || fmt.Sprint(s) != fmt.Sprint(c.want) {
			t.Errorf("%v: %+v, %v", c.old, s, err)
		}
	}
	_, q := brokenCluster(t, &recoverytest.BrokenEtcd{})
	q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	if _, err := q.survey(t.Context(), clustertest.Silent); err == nil ||
		!strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("without any survivor: %v", err)
	}
}

func TestQuorumIsRecoveredWithoutLosingTheLastData(t *testing.T) {
	for what, shape := range recoverytest.BrokenShapes() {
		t.Run(what, func(t *testing.T) {
			e := shape()
			w, q := brokenCluster(t, e)
			plan, err := newPlan(q)
			if err != nil {
				t.Fatal(err)
			}
			var stopped bool
			journal := flow.Memory()
			for range 2 { // and again, when everything is done
				_, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All,
					Observe: func(ev flow.Event) {
						if ev.Step == "etcd-members" && ev.Kind == flow.StepStarted {
							stopped = replicasIn(w) == "0"
						}
					}})
				if err != nil {
					t.Fatalf("%v\n%v", err, e.Calls)
				}
			}
			recovered(t, e, w)
			for _, call := range []string{"snapshot", "upload", "bootstrap"} {
				if n := len(slices.DeleteFunc(slices.Clone(e.Calls),
					func(c string) bool { return !strings.HasPrefix(c, call) })); n != 1 {
					t.Errorf("%d calls of %s in %v", n, call, e.Calls)
				}
			}
			if writes := len(w.Management.Writes()); writes < 4 || !stopped {
				t.Errorf("Cluster API was not held off: %d writes to the management cluster, stopped in its own: %v", writes,
					stopped)
			}
		})
	}
}

// TestQuorumRecoveryKilledAtEveryCall ends a run before and after each call that changes a server, and resumes with the
// journal that it left.
func TestQuorumRecoveryKilledAtEveryCall(t *testing.T) {
	for what, shape := range recoverytest.BrokenShapes() {
		for nth, more := 1, true; more; nth++ {
			for _, applied := range []bool{false, true} {
				e := shape()
				w, q := brokenCluster(t, e)
				plan, err := newPlan(q)
				if err != nil {
					t.Fatal(err)
				}
				killed, end := context.WithCancel(t.Context())
				calls := 0
				e.Kill = func(_ string, after bool) error {
					if after == applied {
						calls++
					}
					if calls == nth && after == applied {
						end()
						return context.Canceled
					}
					return nil
				}
				journal := flow.Memory()
				_, err = plan.Graph.Run(killed, flow.Options{Journal: journal, Targets: plan.All})
				more = err != nil
				end()
				e.Kill = nil
				if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); err != nil {
					t.Fatalf("%s, killed at call %d (applied: %v): %v\n%v", what, nth, applied, err, e.Calls)
				}
				recovered(t, e, w)
			}
			if nth == 1 && !more {
				t.Errorf("%s: nothing was killed", what)
			}
		}
	}
}

func TestAQuorumThatComesBackEndsTheRecovery(t *testing.T) {
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 4, recoverytest.Cp1: 6, recoverytest.Cp2: 5}}
	w, q := brokenCluster(t, e)
	plan, err := newPlan(q)
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Before}); err != nil {
		t.Fatal(err)
	}
	e.Quorum = true
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); !errors.Is(err,
		ErrQuorum) {
		t.Fatalf("%v\n%v", err, e.Calls)
	}
	if len(e.Old) != 3 || len(e.Members) > 0 {
		t.Errorf("servers were wiped: %v", e.Calls)
	}
	if !capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), "spec", "paused") {
		t.Fatal("the cluster was not paused: there is nothing to take back")
	}
	if len(w.Hetzner.PlacementGroups()) != 1 {
		t.Fatal("the recovery was not claimed: there is nothing to take back")
	}
	if err := plan.Abandon(t.Context(), clustertest.Silent); err != nil {
		t.Fatal(err)
	}
	if groups := w.Hetzner.PlacementGroups(); len(groups) > 0 {
		t.Errorf("the claim is left: %+v", groups)
	}
	if cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"); capi.Truth(cluster, "spec",
		"paused") || len(cluster.GetAnnotations()) > 0 {
		t.Errorf("the Cluster is left %v", cluster.Object)
	}
}

// A member that is slow to say how far it is gets the time to.
func TestTheSurvivorIsNotChosenInHaste(t *testing.T) {
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 5, recoverytest.Cp1: 7},
		Deaf: map[string]bool{recoverytest.Cp1: true}}
	_, q := brokenCluster(t, e)
	q.patience = time.Second // the slow member gets four times as long
	var said bool
	s, err := q.survey(t.Context(), func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.Contains(line, recoverytest.Cp1+" holds data of etcd and does not "+
			"say how "+
			"far it is") && !said {
			said = true
			e.Mu.Lock()
			defer e.Mu.Unlock()
			e.Deaf = nil
		}
	})
	if err != nil || !said || s.Survivor != recoverytest.Cp1 || len(s.Silent) > 0 {
		t.Errorf("%+v, %v; it said who is silent: %v", s, err, said)
	}
}

// A snapshot that is older than what etcd has taken in since is not used, nor where that cannot be known any
// more.
func TestAnEtcdThatHasWorkedSinceIsLookedAtAnew(t *testing.T) {
	for what, c := range map[string]struct {
		now  map[string]uint64
		deaf map[string]bool
		want string
	}{
		"two have worked": {map[string]uint64{recoverytest.Cp0: 400, recoverytest.Cp1: 600, recoverytest.Cp2: 500}, nil,
			"is at index"},
		"one alone tells": {map[string]uint64{recoverytest.Cp0: 4, recoverytest.Cp1: 6, recoverytest.Cp2: 7}, nil,
			recoverytest.Cp2 + " is at index 7"},
		"one is restarted, one says no more": {map[string]uint64{recoverytest.Cp0: 3, recoverytest.Cp1: 6,
			recoverytest.Cp2: 5}, map[string]bool{recoverytest.Cp2: true}, recoverytest.Cp2 +
			" holds data of etcd and does not say any more"},
	} {
		e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp0: 4, recoverytest.Cp1: 6, recoverytest.Cp2: 5}}
		_, q := brokenCluster(t, e)
		plan, err := newPlan(q)
		if err != nil {
			t.Fatal(err)
		}
		journal := flow.Memory()
		if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Before}); err != nil {
			t.Fatal(err)
		}
		e.Old, e.Deaf = c.now, c.deaf
		q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
		_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All})
		if err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), records.QuorumFiles(q.tools.Files).String()) {
			t.Errorf("%s: %v", what, err)
		}
		if slices.ContainsFunc(e.Calls, func(c string) bool { return strings.HasPrefix(c, "wipe") }) {
			t.Errorf("%s: it does %v", what, e.Calls)
		}
	}
}

func TestSomebodyElsesPauseStays(t *testing.T) {
	w, q := brokenCluster(t, &recoverytest.BrokenEtcd{})
	w.Management.Change(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s",
		map[string]any{"spec": map[string]any{"paused": true}})
	h, err := q.pause(t.Context(), clustertest.Silent, etcdview.Survey{})
	if err != nil || h.Paused {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := q.unpause(t.Context(), clustertest.Silent); err != nil {
		t.Fatal(err)
	}
	if !capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), "spec", "paused") {
		t.Error("somebody else's pause was taken back")
	}
}

func TestADamagedSnapshotWipesNothing(t *testing.T) {
	for what, inspect := range map[string]func(string, string) (etcd.Content, error){
		"damaged":       func(string, string) (etcd.Content, error) { return etcd.Content{}, errors.New("its sum differs") },
		"of no cluster": func(string, string) (etcd.Content, error) { return etcd.Content{Revision: 1}, nil },
	} {
		e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5, recoverytest.Cp2: 4}}
		_, q := brokenCluster(t, e)
		q.inspect = inspect
		plan, err := newPlan(q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: flow.Memory(), Targets: plan.All}); err == nil ||
			len(e.Calls) != 1 {
			t.Errorf("%s: %v, after %v", what, err, e.Calls)
		}
		if _, err := os.Lstat(records.QuorumFiles(q.tools.Files).Path(records.SnapshotFile)); err == nil {
			t.Errorf("%s: it lies where a good one would", what)
		}
	}
	// And one that is changed in the folder, before the first wipe.
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5, recoverytest.Cp2: 4}}
	_, q := brokenCluster(t, e)
	s, err := q.takeSnapshot(t.Context(), clustertest.Silent, etcdview.Survey{Survivor: recoverytest.Cp1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(records.QuorumFiles(q.tools.Files).Path(records.SnapshotFile),
		[]byte("snapshot 0f "+recoverytest.Cp0), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := q.clearOthers(t.Context(), clustertest.Silent,
		etcdview.Survey{Servers: e.Servers, Survivor: recoverytest.Cp1,
			Wipe: []string{recoverytest.Cp2}, Target: recoverytest.Cp0}, s); err == nil || len(e.Calls) != 1 {
		t.Errorf("changed: %v, after %v", err, e.Calls)
	}
}

func TestNoEtcdIsMadeBesideAnother(t *testing.T) {
	survey := etcdview.Survey{Servers: []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2},
		Survivor: recoverytest.Cp1, Target: recoverytest.Cp0}
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5, recoverytest.Cp2: 4}}
	_, q := brokenCluster(t, e)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, Snapshot{}); err == nil ||
		!strings.Contains(err.Error(), recoverytest.Cp2) || len(e.Calls) > 0 {
		t.Errorf("beside data of the old one: %v, after %v", err, e.Calls)
	}
	e = &recoverytest.BrokenEtcd{Members: []string{recoverytest.Cp0}, Old: map[string]uint64{recoverytest.Cp1: 5}}
	_, q = brokenCluster(t, e)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, Snapshot{UID: "another",
		Revision: 1}); err == nil || !strings.Contains(err.Error(), "another cluster answers") {
		t.Errorf("an etcd of another cluster: %v", err)
	}
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, Snapshot{UID: "workload",
		Revision: 7}); err == nil || !strings.Contains(err.Error(), "another cluster answers") {
		t.Errorf("an etcd that knows less than the snapshot: %v", err)
	}
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, Snapshot{UID: "workload",
		Revision: 1}); err != nil || len(e.Calls) > 0 {
		t.Errorf("one that was restored already: %v, after %v", err, e.Calls)
	}
}

// TestAResetTargetGetsTheSnapshotInGoodTime: it lost what etcd-recover has uploaded, and the step after that uploads it
// again.
func TestAResetTargetGetsTheSnapshotInGoodTime(t *testing.T) {
	survey := etcdview.Survey{Servers: []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2},
		Survivor: recoverytest.Cp1, Target: recoverytest.Cp0}
	e := &recoverytest.BrokenEtcd{Old: map[string]uint64{recoverytest.Cp1: 5}}
	_, q := brokenCluster(t, e)
	snapshot, err := q.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	q.cfg.ControlPlaneTimeout = config.Duration(20 * time.Minute)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, snapshot); err != nil ||
		!slices.Contains(e.Calls, "upload to "+recoverytest.Cp0) || e.Patient < 10*time.Minute {
		t.Errorf("%v: the upload was given %s: %v", err, e.Patient, e.Calls)
	}
}

func TestTheSurvivorIsNotWipedOnItsWayIn(t *testing.T) {
	for what, in := range map[string]talos.EtcdMember{
		"it learns":                  {Name: recoverytest.Cp1, Learner: true},
		"a member without a name is": {},
	} {
		e := &recoverytest.BrokenEtcd{Members: []string{recoverytest.Cp0, recoverytest.Cp2},
			Old: map[string]uint64{recoverytest.Cp1: 5}, Joining: []talos.EtcdMember{in}}
		_, q := brokenCluster(t, e)
		q.cfg.ControlPlaneTimeout = config.Duration(50 * time.Millisecond)
		survey := etcdview.Survey{Servers: []string{recoverytest.Cp0, recoverytest.Cp1, recoverytest.Cp2},
			Survivor: recoverytest.Cp1, Target: recoverytest.Cp0}
		if _, err := q.rejoinSurvivor(t.Context(), clustertest.Silent, survey,
			recovery.Membership{}); err == nil ||
			len(e.Calls) > 0 {
			t.Errorf("%s: %v, after %v", what, err, e.Calls)
		}
	}
}
