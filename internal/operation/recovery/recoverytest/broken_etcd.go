// Package recoverytest is a cluster without a quorum of etcd, in memory, for tests of recoveries.
package recoverytest

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
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/platform"
)

// Names of the control plane servers.
const Cp0, Cp1, Cp2 = "k8s-control-plane-0", "k8s-control-plane-1", "k8s-control-plane-2"

// BrokenEtcd are control plane servers by their private addresses. A server without data joins the etcd that was
// restored.
type BrokenEtcd struct {
	clustertest.HealthyTalos
	Mu       sync.Mutex
	Servers  []string
	Old      map[string]uint64  // server with data of the old etcd → how far it is
	Members  []string           // of the new etcd
	Joining  []talos.EtcdMember // besides, and do not vote yet
	State    map[string]string  // server without data → state of its service etcd, where it does not wait to be started
	Deaf     map[string]bool    // server whose etcd does not say how far it is
	Quorum   bool               // the old one has it
	Uploaded map[string]string  // server → the snapshot that is on it
	Wrong    []string           // what may never happen, and did
	Calls    []string
	Patient  time.Duration // that the last upload was given

	Kill func(call string, applied bool) error // an error ends the run there
}

func nameAt(r talos.Route) string { return "k8s-control-plane-" + r.Node[len(r.Node)-1:] }

// change makes a change, and lets a run be killed before and after it.
func (e *BrokenEtcd) change(ctx context.Context, call string, do func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if e.Kill != nil {
		if err := e.Kill(call, false); err != nil {
			return err
		}
	}
	e.Calls = append(e.Calls, call)
	err := do()
	if e.Kill != nil {
		err = errors.Join(err, e.Kill(call, true))
	}
	return err
}

// HasEtcdData implements talos.Client.
func (e *BrokenEtcd) HasEtcdData(_ context.Context, r talos.Route) (bool, error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if r.Node == "" {
		return false, errors.New("a firewall is in the way")
	}
	_, old := e.Old[nameAt(r)]
	return old || slices.Contains(e.Members, nameAt(r)), nil
}

// Ask implements talos.Client.
func (e *BrokenEtcd) Ask(ctx context.Context, r talos.Route) (talos.Node, error) {
	if data, err := e.HasEtcdData(ctx, r); data || err != nil {
		return talos.Node{Etcd: "Running"}, err
	}
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return talos.Node{Etcd: cmp.Or(e.State[nameAt(r)], etcdview.Preparing)}, nil
}

// LocalEtcdMembers implements talos.Client.
func (e *BrokenEtcd) LocalEtcdMembers(_ context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	var members []talos.EtcdMember
	if _, old := e.Old[nameAt(r)]; old {
		if !e.Quorum {
			return nil, errors.New("etcdserver: no leader")
		}
		return []talos.EtcdMember{{Name: Cp0}, {Name: Cp1}, {Name: Cp2}}, nil
	}
	if !slices.Contains(e.Members, nameAt(r)) {
		return nil, errors.New("etcd does not serve")
	}
	for _, m := range e.Members {
		members = append(members, talos.EtcdMember{Name: m})
	}
	return append(members, e.Joining...), nil
}

// EtcdIndex implements talos.Client.
func (e *BrokenEtcd) EtcdIndex(_ context.Context, r talos.Route) (uint64, error) {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if e.Deaf[nameAt(r)] {
		return 0, errors.New("etcd does not serve")
	}
	return e.Old[nameAt(r)], nil
}

// EtcdSnapshot implements talos.Client.
func (e *BrokenEtcd) EtcdSnapshot(ctx context.Context, r talos.Route) (io.ReadCloser, error) {
	err := e.change(ctx, "snapshot of "+nameAt(r), func() error { return nil })
	return io.NopCloser(strings.NewReader("snapshot of " + nameAt(r))), err
}

// WipeEphemeral implements talos.Client.
func (e *BrokenEtcd) WipeEphemeral(ctx context.Context, r talos.Route) error {
	return e.change(ctx, "wipe "+nameAt(r), func() error {
		if slices.Contains(e.Members, nameAt(r)) {
			e.Wrong = append(e.Wrong, "a member of the new etcd is wiped: "+nameAt(r))
		}
		delete(e.Old, nameAt(r))
		delete(e.Uploaded, nameAt(r))
		e.join()
		return nil
	})
}

// join lets those without data join the new etcd, if there is one.
func (e *BrokenEtcd) join() {
	for _, name := range e.Servers {
		if _, old := e.Old[name]; len(e.Members) > 0 && !old && !slices.Contains(e.Members, name) {
			e.Members = append(e.Members, name)
		}
	}
}

// HasSnapshot implements talos.Client.
func (e *BrokenEtcd) HasSnapshot(_ context.Context, r talos.Route, snapshot io.Reader, _ int64) (bool, error) {
	data, err := io.ReadAll(snapshot)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	there, has := e.Uploaded[nameAt(r)]
	return has && there == string(data), err
}

// UploadSnapshot implements talos.Client.
func (e *BrokenEtcd) UploadSnapshot(ctx context.Context, r talos.Route, snapshot io.Reader) error {
	data, err := io.ReadAll(snapshot)
	return errors.Join(err, e.change(ctx, "upload to "+nameAt(r), func() error {
		if !bytes.HasPrefix(data, []byte("snapshot of ")) {
			e.Wrong = append(e.Wrong, fmt.Sprintf("%q is uploaded", data))
		}
		if until, bounded := ctx.Deadline(); bounded {
			e.Patient = time.Until(until)
		}
		e.Uploaded[nameAt(r)] = string(data)
		return nil
	}))
}

// BootstrapRecovered implements talos.Client.
func (e *BrokenEtcd) BootstrapRecovered(ctx context.Context, r talos.Route) error {
	return e.change(ctx, "bootstrap "+nameAt(r), func() error {
		switch _, old := e.Old[nameAt(r)]; {
		case old || slices.Contains(e.Members, nameAt(r)):
			return talos.ErrEtcdData
		case e.Uploaded[nameAt(r)] == "":
			return errors.New("no snapshot was uploaded")
		case len(e.Members) > 0:
			e.Wrong = append(e.Wrong, "a second etcd is made on "+nameAt(r))
		case len(e.Old) > 1:
			e.Wrong = append(e.Wrong, fmt.Sprintf("an etcd is made while %v hold data of the old one, and may find a quorum",
				e.Old))
		}
		e.Members = []string{nameAt(r)}
		e.join()
		return nil
	})
}

// BrokenShapes are etcds in which no member has a leader.
func BrokenShapes() map[string]func() *BrokenEtcd {
	return map[string]func() *BrokenEtcd{
		"one member left":       func() *BrokenEtcd { return &BrokenEtcd{Old: map[string]uint64{Cp1: 5}} },
		"all have data":         func() *BrokenEtcd { return &BrokenEtcd{Old: map[string]uint64{Cp0: 4, Cp1: 6, Cp2: 5}} },
		"the first of two lags": func() *BrokenEtcd { return &BrokenEtcd{Old: map[string]uint64{Cp0: 4, Cp2: 5}} },
		"one server left": func() *BrokenEtcd {
			return &BrokenEtcd{Servers: []string{Cp1},
				Old: map[string]uint64{Cp1: 5}}
		},
	}
}

// BrokenCluster is a cluster that manages itself, of as many servers as the etcd has, with a management cluster beside
// it.
func BrokenCluster(t *testing.T, e *BrokenEtcd) (*clustertest.Environment, config.Config, platform.Tools) {
	t.Helper()
	w := clustertest.New(t)
	e.Uploaded = map[string]string{}
	if e.Servers == nil {
		e.Servers = []string{Cp0, Cp1, Cp2}
	}
	servers := []schema.Server{{ID: 9, Name: "worker", Labels: map[string]string{"caph-cluster-k8s": "owned",
		"machine_type": "worker"}}}
	for i, name := range e.Servers {
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
		e.Mu.Lock()
		defer e.Mu.Unlock()
		if bytes.Equal(kubeconfig, w.Workload.Kubeconfig()) && len(e.Members) == 0 {
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
	w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
	w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
	cfg := config.Defaults()
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(10*time.Second), config.Duration(10*time.Second)
	return w, cfg, tools.WithDefaults()
}
