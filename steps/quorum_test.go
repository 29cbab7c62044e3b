package steps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/platform"
)

const cp0, cp1, cp2 = "k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-2"

// brokenEtcd are control plane servers by their private addresses. A server without data joins the etcd that was restored.
type brokenEtcd struct {
	clustertest.HealthyTalos
	mu       sync.Mutex
	servers  []string
	old      map[string]uint64  // server with data of the old etcd → how far it is
	members  []string           // of the new etcd
	joining  []talos.EtcdMember // besides, and do not vote yet
	state    map[string]string  // server without data → state of its service etcd, where it does not wait to be started
	deaf     map[string]bool    // server whose etcd does not say how far it is
	quorum   bool               // the old one has it
	uploaded map[string]string  // server → the snapshot that lies on it
	wrong    []string           // what may never happen, and did
	calls    []string
	patient  time.Duration // that the last upload was given

	kill func(call string, applied bool) error // an error ends the run there
}

func nameAt(r talos.Route) string { return "k8s-control-plane-" + r.Node[len(r.Node)-1:] }

// change makes a change, and lets a run be killed before and after it.
func (e *brokenEtcd) change(ctx context.Context, call string, do func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.kill != nil {
		if err := e.kill(call, false); err != nil {
			return err
		}
	}
	e.calls = append(e.calls, call)
	err := do()
	if e.kill != nil {
		err = errors.Join(err, e.kill(call, true))
	}
	return err
}

func (e *brokenEtcd) HasEtcdData(_ context.Context, r talos.Route) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r.Node == "" {
		return false, errors.New("a firewall is in the way")
	}
	_, old := e.old[nameAt(r)]
	return old || slices.Contains(e.members, nameAt(r)), nil
}

func (e *brokenEtcd) AskBy(ctx context.Context, r talos.Route) (talos.Node, error) {
	if data, err := e.HasEtcdData(ctx, r); data || err != nil {
		return talos.Node{Etcd: "Running"}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return talos.Node{Etcd: cmp.Or(e.state[nameAt(r)], etcdWaits)}, nil
}

func (e *brokenEtcd) EtcdMembersOf(_ context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var members []talos.EtcdMember
	if _, old := e.old[nameAt(r)]; old {
		if !e.quorum {
			return nil, errors.New("etcdserver: no leader")
		}
		return []talos.EtcdMember{{Name: cp0}, {Name: cp1}, {Name: cp2}}, nil
	}
	if !slices.Contains(e.members, nameAt(r)) {
		return nil, errors.New("etcd does not serve")
	}
	for _, m := range e.members {
		members = append(members, talos.EtcdMember{Name: m})
	}
	return append(members, e.joining...), nil
}

func (e *brokenEtcd) EtcdIndex(_ context.Context, r talos.Route) (uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.deaf[nameAt(r)] {
		return 0, errors.New("etcd does not serve")
	}
	return e.old[nameAt(r)], nil
}

func (e *brokenEtcd) EtcdSnapshotBy(ctx context.Context, r talos.Route) (io.ReadCloser, error) {
	err := e.change(ctx, "snapshot of "+nameAt(r), func() error { return nil })
	return io.NopCloser(strings.NewReader("snapshot of " + nameAt(r))), err
}

func (e *brokenEtcd) WipeEphemeral(ctx context.Context, r talos.Route) error {
	return e.change(ctx, "wipe "+nameAt(r), func() error {
		if slices.Contains(e.members, nameAt(r)) {
			e.wrong = append(e.wrong, "a member of the new etcd is wiped: "+nameAt(r))
		}
		delete(e.old, nameAt(r))
		delete(e.uploaded, nameAt(r))
		e.join()
		return nil
	})
}

// join lets those without data join the new etcd, if there is one.
func (e *brokenEtcd) join() {
	for _, name := range e.servers {
		if _, old := e.old[name]; len(e.members) > 0 && !old && !slices.Contains(e.members, name) {
			e.members = append(e.members, name)
		}
	}
}

func (e *brokenEtcd) HasSnapshot(_ context.Context, r talos.Route, snapshot io.Reader, _ int64) (bool, error) {
	data, err := io.ReadAll(snapshot)
	e.mu.Lock()
	defer e.mu.Unlock()
	there, has := e.uploaded[nameAt(r)]
	return has && there == string(data), err
}

func (e *brokenEtcd) UploadSnapshot(ctx context.Context, r talos.Route, snapshot io.Reader) error {
	data, err := io.ReadAll(snapshot)
	return errors.Join(err, e.change(ctx, "upload to "+nameAt(r), func() error {
		if !bytes.HasPrefix(data, []byte("snapshot of ")) {
			e.wrong = append(e.wrong, fmt.Sprintf("%q is uploaded", data))
		}
		if until, bounded := ctx.Deadline(); bounded {
			e.patient = time.Until(until)
		}
		e.uploaded[nameAt(r)] = string(data)
		return nil
	}))
}

func (e *brokenEtcd) BootstrapRecovered(ctx context.Context, r talos.Route) error {
	return e.change(ctx, "bootstrap "+nameAt(r), func() error {
		switch _, old := e.old[nameAt(r)]; {
		case old || slices.Contains(e.members, nameAt(r)):
			return talos.ErrEtcdData
		case e.uploaded[nameAt(r)] == "":
			return errors.New("no snapshot was uploaded")
		case len(e.members) > 0:
			e.wrong = append(e.wrong, "a second etcd is made on "+nameAt(r))
		case len(e.old) > 1:
			e.wrong = append(e.wrong, fmt.Sprintf("an etcd is made while %v hold data of the old one, and may find a quorum", e.old))
		}
		e.members = []string{nameAt(r)}
		e.join()
		return nil
	})
}

// quorumWorld is a cluster that manages itself, of as many servers as the etcd has, with a management cluster beside it.
func quorumWorld(t *testing.T, e *brokenEtcd) (*clustertest.Environment, *quorum) {
	t.Helper()
	w := clustertest.New(t)
	e.uploaded = map[string]string{}
	if e.servers == nil {
		e.servers = []string{cp0, cp1, cp2}
	}
	servers := []schema.Server{{ID: 9, Name: "worker", Labels: map[string]string{"caph-cluster-k8s": "owned", "machine_type": "worker"}}}
	for i, name := range e.servers {
		servers = append(servers, schema.Server{
			ID: int64(i + 1), Name: name, Status: "running",
			Labels:     map[string]string{"caph-cluster-k8s": "owned", "machine_type": "control_plane"},
			PrivateNet: []schema.ServerPrivateNet{{IP: "127.0.1." + name[len(name)-1:]}},
		})
		w.Workload.Put(kubetest.Object("v1", "Node", "", name, clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "Ready", "status": "True"}}}}))
	}
	w.Hetzner.SetServers(servers...)
	w.Workload.React = nil
	w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "cacppt-system", "manager", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ProviderLabel: "control-plane-talos"}}, "spec": clustertest.Map{"replicas": 2}, "status": clustertest.Map{"availableReplicas": 2},
	}))
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return e, nil }
	tools.Connect = func(kubeconfig []byte) (*kube.Cluster, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if bytes.Equal(kubeconfig, w.Workload.Kubeconfig()) && len(e.members) == 0 {
			return nil, errors.New("the API does not answer") // it has no etcd
		}
		return kube.Connect(kubeconfig)
	}
	for name, data := range map[string][]byte{platform.Talosconfig: w.Talosconfig, platform.Kubeconfig: w.Workload.Kubeconfig(), platform.ManagementKubeconfig: w.Management.Kubeconfig()} {
		if err := tools.Files.Write(name, data); err != nil {
			t.Fatal(err)
		}
	}
	w.Management.Put(crd("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "k8s", nil))
	cfg := config.Defaults()
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(10*time.Second), config.Duration(10*time.Second)
	return w, &quorum{
		Set: newSet(cfg, tools, render.Sources{Vars: render.VariablesOf(cfg)}), patience: 5 * time.Millisecond, every: time.Millisecond,
		inspect: func(string, string) (etcd.Content, error) {
			return etcd.Content{UID: "workload", Revision: 1, Keys: 12}, nil
		},
	}
}

// replicasIn is how many replicas the control plane provider is to have.
func replicasIn(w *clustertest.Environment) string {
	spec, _ := w.Workload.Get("apps/v1", "Deployment", "cacppt-system", "manager").Object["spec"].(map[string]any)
	return fmt.Sprint(spec["replicas"])
}

func TestAnEtcdThatWorksIsNotRecovered(t *testing.T) {
	for what, e := range map[string]*brokenEtcd{
		"a member answers": {old: map[string]uint64{cp0: 5, cp1: 5, cp2: 5}, quorum: true},
		"the API answers":  {members: []string{cp0}},
	} {
		_, q := quorumWorld(t, e)
		if _, err := q.survey(t.Context(), clustertest.Silent); !errors.Is(err, ErrQuorum) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A look chooses the survivor that the recovery would, and writes nothing: no snapshot, no identity, nothing on a server.
func TestALookAtABrokenEtcdChangesNothing(t *testing.T) {
	e := &brokenEtcd{old: map[string]uint64{cp0: 5, cp1: 7, cp2: 6}}
	w, q := quorumWorld(t, e)
	plan, err := newRecoverQuorum(q)
	if err != nil {
		t.Fatal(err)
	}
	writes, before := w.Writes(), filesIn(t, q.tools.Files)
	looked, err := plan.Look(t.Context(), clustertest.Silent)
	if err != nil || looked.Survivor != cp1 || looked.Target != cp0 || !slices.Equal(looked.Wipe, []string{cp0, cp2}) {
		t.Errorf("%+v, %v", looked, err)
	}
	if w.Writes() != writes || len(e.calls) > 0 {
		t.Errorf("it wrote %d times, and called %v", w.Writes()-writes, e.calls)
	}
	if after := filesIn(t, q.tools.Files); !slices.Equal(before, after) {
		t.Errorf("the state folder had %v, and has %v", before, after)
	}
	surveyed, err := q.survey(t.Context(), clustertest.Silent)
	if err != nil || surveyed.Survivor != looked.Survivor || surveyed.Target != looked.Target {
		t.Errorf("the recovery chooses %+v, %v", surveyed, err)
	}
	e.mu.Lock()
	e.quorum = true
	e.mu.Unlock()
	if _, err := plan.Look(t.Context(), clustertest.Silent); !errors.Is(err, ErrQuorum) {
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
	w, q := quorumWorld(t, &brokenEtcd{old: map[string]uint64{cp1: 5}})
	w.Hetzner.SetPlacementGroups(schema.PlacementGroup{ID: 7, Name: "slipway-k8s.restore", Type: "spread", Labels: map[string]string{
		"slipway-cluster": "k8s", reservedBy: "0123456789abcdef", "slipway-host": "laptop"}})
	var recovering *RecoveringError
	if _, err := q.survey(t.Context(), clustertest.Silent); !errors.As(err, &recovering) || !strings.Contains(err.Error(), "laptop") {
		t.Errorf("%v", err)
	}
}

func TestTheMemberThatKnowsMostIsTheOneToKeep(t *testing.T) {
	all := []string{cp0, cp1, cp2}
	for _, c := range []struct {
		servers []string
		old     map[string]uint64
		deaf    map[string]bool
		want    QuorumSurvey
	}{
		{all, map[string]uint64{cp1: 5}, nil, QuorumSurvey{all, cp1, 5, nil, cp0, nil}},
		{all, map[string]uint64{cp0: 5, cp1: 7, cp2: 6}, nil, QuorumSurvey{all, cp1, 7, []string{cp0, cp2}, cp0, nil}},
		{all, map[string]uint64{cp0: 9, cp2: 6}, nil, QuorumSurvey{all, cp0, 9, []string{cp2}, cp1, nil}},
		{all, map[string]uint64{cp0: 5, cp2: 6}, map[string]bool{cp2: true}, QuorumSurvey{all, cp0, 5, []string{cp2}, cp1, []string{cp2}}},
		{[]string{cp2}, map[string]uint64{cp2: 6}, nil, QuorumSurvey{[]string{cp2}, cp2, 6, []string{cp2}, cp2, nil}},
	} {
		_, q := quorumWorld(t, &brokenEtcd{servers: c.servers, old: c.old, deaf: c.deaf})
		s, err := q.survey(t.Context(), clustertest.Silent)
		if err != nil || fmt.Sprint(s) != fmt.Sprint(c.want) {
			t.Errorf("%v: %+v, %v", c.old, s, err)
		}
	}
	_, q := quorumWorld(t, &brokenEtcd{})
	q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	if _, err := q.survey(t.Context(), clustertest.Silent); err == nil || !strings.Contains(err.Error(), "restore a backup") {
		t.Errorf("without any survivor: %v", err)
	}
}

// brokenShapes are etcds in which nobody has a leader.
func brokenShapes() map[string]func() *brokenEtcd {
	return map[string]func() *brokenEtcd{
		"one member left":       func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp1: 5}} },
		"all have data":         func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp0: 4, cp1: 6, cp2: 5}} },
		"the first of two lags": func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp0: 4, cp2: 5}} },
		"one server left":       func() *brokenEtcd { return &brokenEtcd{servers: []string{cp1}, old: map[string]uint64{cp1: 5}} },
	}
}

// recovered fails unless etcd is one and whole, and everybody was let go.
func (e *brokenEtcd) recovered(t *testing.T, w *clustertest.Environment) {
	t.Helper()
	members := slices.Clone(e.members)
	slices.Sort(members)
	if len(e.old) > 0 || !slices.Equal(members, e.servers) {
		t.Errorf("the members are %v, and %v hold the old data", members, e.old)
	}
	if len(e.wrong) > 0 {
		t.Errorf("%v in %v", e.wrong, e.calls)
	}
	if !strings.HasPrefix(e.calls[0], "snapshot of ") {
		t.Errorf("before a snapshot is kept it does %v", e.calls)
	}
	cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s")
	if capi.Truth(cluster, "spec", "paused") || len(cluster.GetAnnotations()) > 0 {
		t.Errorf("the Cluster is left %v", cluster.Object)
	}
	provider := w.Workload.Get("apps/v1", "Deployment", "cacppt-system", "manager")
	if replicasIn(w) != "2" || provider.GetAnnotations()[replicasAnnotation] != "" {
		t.Errorf("the control plane provider is left %v", provider.Object)
	}
}

func TestQuorumIsRecoveredWithoutLosingTheLastData(t *testing.T) {
	for what, shape := range brokenShapes() {
		t.Run(what, func(t *testing.T) {
			e := shape()
			w, q := quorumWorld(t, e)
			plan, err := newRecoverQuorum(q)
			if err != nil {
				t.Fatal(err)
			}
			var stopped bool
			journal := flow.Memory()
			for range 2 { // and again, when everything is done
				_, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All, Observe: func(ev flow.Event) {
					if ev.Step == "etcd-members" && ev.Kind == flow.StepStarted {
						stopped = replicasIn(w) == "0"
					}
				}})
				if err != nil {
					t.Fatalf("%v\n%v", err, e.calls)
				}
			}
			e.recovered(t, w)
			for _, call := range []string{"snapshot", "upload", "bootstrap"} {
				if n := len(slices.DeleteFunc(slices.Clone(e.calls), func(c string) bool { return !strings.HasPrefix(c, call) })); n != 1 {
					t.Errorf("%d calls of %s in %v", n, call, e.calls)
				}
			}
			if writes := len(w.Management.Writes()); writes < 4 || !stopped {
				t.Errorf("Cluster API was not held off: %d writes to the management cluster, stopped in its own: %v", writes, stopped)
			}
		})
	}
}

// TestQuorumRecoveryKilledAtEveryCall ends a run before and after each call that changes a server, and goes on with the journal
// that it left.
func TestQuorumRecoveryKilledAtEveryCall(t *testing.T) {
	for what, shape := range brokenShapes() {
		for nth, more := 1, true; more; nth++ {
			for _, applied := range []bool{false, true} {
				e := shape()
				w, q := quorumWorld(t, e)
				plan, err := newRecoverQuorum(q)
				if err != nil {
					t.Fatal(err)
				}
				killed, end := context.WithCancel(t.Context())
				calls := 0
				e.kill = func(_ string, after bool) error {
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
				e.kill = nil
				if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); err != nil {
					t.Fatalf("%s, killed at call %d (applied: %v): %v\n%v", what, nth, applied, err, e.calls)
				}
				e.recovered(t, w)
			}
			if nth == 1 && !more {
				t.Errorf("%s: nothing was killed", what)
			}
		}
	}
}

func TestAQuorumThatComesBackEndsTheRecovery(t *testing.T) {
	e := &brokenEtcd{old: map[string]uint64{cp0: 4, cp1: 6, cp2: 5}}
	w, q := quorumWorld(t, e)
	plan, err := newRecoverQuorum(q)
	if err != nil {
		t.Fatal(err)
	}
	journal := flow.Memory()
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Before}); err != nil {
		t.Fatal(err)
	}
	e.quorum = true
	if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All}); !errors.Is(err, ErrQuorum) {
		t.Fatalf("%v\n%v", err, e.calls)
	}
	if len(e.old) != 3 || len(e.members) > 0 {
		t.Errorf("servers were wiped: %v", e.calls)
	}
	if !capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s"), "spec", "paused") {
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
	if cluster := w.Management.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s"); capi.Truth(cluster, "spec", "paused") || len(cluster.GetAnnotations()) > 0 {
		t.Errorf("the Cluster is left %v", cluster.Object)
	}
}

// A member that is slow to say how far it is gets the time to.
func TestTheSurvivorIsNotChosenInHaste(t *testing.T) {
	e := &brokenEtcd{old: map[string]uint64{cp0: 5, cp1: 7}, deaf: map[string]bool{cp1: true}}
	_, q := quorumWorld(t, e)
	q.patience = time.Minute // far from over
	var said bool
	s, err := q.survey(t.Context(), func(format string, args ...any) {
		if line := fmt.Sprintf(format, args...); strings.Contains(line, cp1+" holds data of etcd and does not say how far it is") && !said {
			said, q.patience = true, time.Nanosecond
			e.mu.Lock()
			defer e.mu.Unlock()
			e.deaf = nil
		}
	})
	if err != nil || !said || s.Survivor != cp1 || len(s.Silent) > 0 {
		t.Errorf("%+v, %v; it said who is silent: %v", s, err, said)
	}
}

// A snapshot that is older than what etcd has taken in since is none to go on with, nor where that cannot be told any more.
func TestAnEtcdThatHasWorkedSinceIsLookedAtAnew(t *testing.T) {
	for what, c := range map[string]struct {
		now  map[string]uint64
		deaf map[string]bool
		want string
	}{
		"two have worked":                    {map[string]uint64{cp0: 400, cp1: 600, cp2: 500}, nil, "is at index"},
		"one alone tells":                    {map[string]uint64{cp0: 4, cp1: 6, cp2: 7}, nil, cp2 + " is at index 7"},
		"one is restarted, one says no more": {map[string]uint64{cp0: 3, cp1: 6, cp2: 5}, map[string]bool{cp2: true}, cp2 + " holds data of etcd and does not say any more"},
	} {
		e := &brokenEtcd{old: map[string]uint64{cp0: 4, cp1: 6, cp2: 5}}
		_, q := quorumWorld(t, e)
		plan, err := newRecoverQuorum(q)
		if err != nil {
			t.Fatal(err)
		}
		journal := flow.Memory()
		if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.Before}); err != nil {
			t.Fatal(err)
		}
		e.old, e.deaf = c.now, c.deaf
		q.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
		_, err = plan.Graph.Run(t.Context(), flow.Options{Journal: journal, Targets: plan.All})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), QuorumFiles(q.tools.Files).String()) {
			t.Errorf("%s: %v", what, err)
		}
		if slices.ContainsFunc(e.calls, func(c string) bool { return strings.HasPrefix(c, "wipe") }) {
			t.Errorf("%s: it does %v", what, e.calls)
		}
	}
}

func TestSomebodyElsesPauseStays(t *testing.T) {
	w, q := quorumWorld(t, &brokenEtcd{})
	w.Management.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s", map[string]any{"spec": map[string]any{"paused": true}})
	h, err := q.pause(t.Context(), clustertest.Silent, QuorumSurvey{})
	if err != nil || h.Paused {
		t.Fatalf("%+v, %v", h, err)
	}
	if err := q.unpause(t.Context(), clustertest.Silent); err != nil {
		t.Fatal(err)
	}
	if !capi.Truth(w.Management.Get(clustertest.CAPI, "Cluster", config.Namespace, "k8s"), "spec", "paused") {
		t.Error("somebody else's pause was taken back")
	}
}

func TestADamagedSnapshotWipesNothing(t *testing.T) {
	for what, inspect := range map[string]func(string, string) (etcd.Content, error){
		"damaged":       func(string, string) (etcd.Content, error) { return etcd.Content{}, errors.New("its sum differs") },
		"of no cluster": func(string, string) (etcd.Content, error) { return etcd.Content{Revision: 1}, nil },
	} {
		e := &brokenEtcd{old: map[string]uint64{cp1: 5, cp2: 4}}
		_, q := quorumWorld(t, e)
		q.inspect = inspect
		plan, err := newRecoverQuorum(q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Graph.Run(t.Context(), flow.Options{Journal: flow.Memory(), Targets: plan.All}); err == nil || len(e.calls) != 1 {
			t.Errorf("%s: %v, after %v", what, err, e.calls)
		}
		if _, err := os.Lstat(QuorumFiles(q.tools.Files).Path(SnapshotFile)); err == nil {
			t.Errorf("%s: it lies where a good one would", what)
		}
	}
	// And one that is changed in the folder, before the first wipe.
	e := &brokenEtcd{old: map[string]uint64{cp1: 5, cp2: 4}}
	_, q := quorumWorld(t, e)
	s, err := q.takeSnapshot(t.Context(), clustertest.Silent, QuorumSurvey{Survivor: cp1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(QuorumFiles(q.tools.Files).Path(SnapshotFile), []byte("snapshot 0f "+cp0), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := q.clearOthers(t.Context(), clustertest.Silent, QuorumSurvey{Servers: e.servers, Survivor: cp1, Wipe: []string{cp2}, Target: cp0}, s); err == nil || len(e.calls) != 1 {
		t.Errorf("changed: %v, after %v", err, e.calls)
	}
}

func TestNoEtcdIsMadeBesideAnother(t *testing.T) {
	survey := QuorumSurvey{Servers: []string{cp0, cp1, cp2}, Survivor: cp1, Target: cp0}
	e := &brokenEtcd{old: map[string]uint64{cp1: 5, cp2: 4}}
	_, q := quorumWorld(t, e)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, QuorumSnapshot{}); err == nil || !strings.Contains(err.Error(), cp2) || len(e.calls) > 0 {
		t.Errorf("beside data of the old one: %v, after %v", err, e.calls)
	}
	e = &brokenEtcd{members: []string{cp0}, old: map[string]uint64{cp1: 5}}
	_, q = quorumWorld(t, e)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, QuorumSnapshot{UID: "another", Revision: 1}); err == nil || !strings.Contains(err.Error(), "another cluster answers") {
		t.Errorf("an etcd of another cluster: %v", err)
	}
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, QuorumSnapshot{UID: "workload", Revision: 7}); err == nil || !strings.Contains(err.Error(), "another cluster answers") {
		t.Errorf("an etcd that knows less than the snapshot: %v", err)
	}
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, QuorumSnapshot{UID: "workload", Revision: 1}); err != nil || len(e.calls) > 0 {
		t.Errorf("one that was restored already: %v, after %v", err, e.calls)
	}
}

// TestAResetTargetGetsTheSnapshotInGoodTime: it lost what etcd-recover has uploaded, and the step after that uploads it again.
func TestAResetTargetGetsTheSnapshotInGoodTime(t *testing.T) {
	survey := QuorumSurvey{Servers: []string{cp0, cp1, cp2}, Survivor: cp1, Target: cp0}
	e := &brokenEtcd{old: map[string]uint64{cp1: 5}}
	_, q := quorumWorld(t, e)
	snapshot, err := q.takeSnapshot(t.Context(), clustertest.Silent, survey)
	if err != nil {
		t.Fatal(err)
	}
	q.cfg.ControlPlaneTimeout = config.Duration(20 * time.Minute)
	if _, err := q.bootstrapRecovered(t.Context(), clustertest.Silent, survey, snapshot); err != nil || !slices.Contains(e.calls, "upload to "+cp0) || e.patient < 10*time.Minute {
		t.Errorf("%v: the upload was given %s: %v", err, e.patient, e.calls)
	}
}

func TestTheSurvivorIsNotWipedOnItsWayIn(t *testing.T) {
	for what, in := range map[string]talos.EtcdMember{
		"it learns":                  {Name: cp1, Learner: true},
		"a member without a name is": {},
	} {
		e := &brokenEtcd{members: []string{cp0, cp2}, old: map[string]uint64{cp1: 5}, joining: []talos.EtcdMember{in}}
		_, q := quorumWorld(t, e)
		q.cfg.ControlPlaneTimeout = config.Duration(50 * time.Millisecond)
		survey := QuorumSurvey{Servers: []string{cp0, cp1, cp2}, Survivor: cp1, Target: cp0}
		if _, err := q.rejoinSurvivor(t.Context(), clustertest.Silent, survey, EtcdMembership{}); err == nil || len(e.calls) > 0 {
			t.Errorf("%s: %v, after %v", what, err, e.calls)
		}
	}
}
