package steps

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcddata"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/platform"
)

const cp0, cp1, cp2 = "k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-2"

// brokenEtcd are control plane servers by their private addresses. A server without data joins the etcd that was
// restored.
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
	uploaded map[string]string  // server → the snapshot that is on it
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
	return talos.Node{Etcd: cmp.Or(e.state[nameAt(r)], etcddata.Preparing)}, nil
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
			e.wrong = append(e.wrong, fmt.Sprintf("an etcd is made while %v hold data of the old one, and may find a quorum",
				e.old))
		}
		e.members = []string{nameAt(r)}
		e.join()
		return nil
	})
}

// quorumWorld is a cluster that manages itself, of as many servers as the etcd has, with a management cluster beside
// it.
func quorumWorld(t *testing.T, e *brokenEtcd) (*clustertest.Environment, quorumInputs) {
	t.Helper()
	w := clustertest.New(t)
	e.uploaded = map[string]string{}
	if e.servers == nil {
		e.servers = []string{cp0, cp1, cp2}
	}
	servers := []schema.Server{{ID: 9, Name: "worker", Labels: map[string]string{"caph-cluster-k8s": "owned",
		"machine_type": "worker"}}}
	for i, name := range e.servers {
		servers = append(servers, schema.Server{
			ID: int64(i + 1), Name: name, Status: "running",
			Labels:     map[string]string{"caph-cluster-k8s": "owned", "machine_type": "control_plane"},
			PrivateNet: []schema.ServerPrivateNet{{IP: "127.0.1." + name[len(name)-1:]}},
		})
		w.Workload.Put(kubetest.Object("v1", "Node", "", name,
			clustertest.Map{"status": clustertest.Map{"conditions": []any{clustertest.Map{"type": "Ready", "status": "True"}}}}))
	}
	w.Hetzner.SetServers(servers...)
	w.Workload.React = nil
	w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "cacppt-system", "manager", clustertest.Map{
		"metadata": clustertest.Map{"labels": clustertest.Map{capi.ProviderLabel: "control-plane-talos"}},
		"spec":     clustertest.Map{"replicas": 2}, "status": clustertest.Map{"availableReplicas": 2},
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
	for name, data := range map[string][]byte{platform.Talosconfig: w.Talosconfig,
		platform.Kubeconfig: w.Workload.Kubeconfig(), platform.ManagementKubeconfig: w.Management.Kubeconfig()} {
		if err := tools.Files.Write(name, data); err != nil {
			t.Fatal(err)
		}
	}
	w.Management.Put(crd("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.Namespace, "k8s", nil))
	cfg := config.Defaults()
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(10*time.Second), config.Duration(10*time.Second)
	return w, quorumInputs{
		cfg: cfg, tools: tools.WithDefaults(), patience: 5 * time.Millisecond,
		every: time.Millisecond,
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

// brokenShapes are etcds in which no member has a leader.
func brokenShapes() map[string]func() *brokenEtcd {
	return map[string]func() *brokenEtcd{
		"one member left":       func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp1: 5}} },
		"all have data":         func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp0: 4, cp1: 6, cp2: 5}} },
		"the first of two lags": func() *brokenEtcd { return &brokenEtcd{old: map[string]uint64{cp0: 4, cp2: 5}} },
		"one server left": func() *brokenEtcd {
			return &brokenEtcd{servers: []string{cp1},
				old: map[string]uint64{cp1: 5}}
		},
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
