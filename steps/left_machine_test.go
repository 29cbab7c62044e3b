package steps

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// leftTalos are the servers of a rollout in which the member of m1 has left etcd.
type leftTalos struct {
	clustertest.HealthyTalos
	counted bool // the members still count m1
}

func (l leftTalos) Ask(_ context.Context, r talos.Route) (talos.Node, error) {
	if r.Endpoint == "127.0.1.1" {
		return talos.Node{Version: "v1.13.9", Etcd: "Finished"}, nil
	}
	return talos.Node{Version: "v1.13.9", Etcd: "Running", Healthy: true}, nil
}

func (l leftTalos) EtcdMembers(context.Context, talos.Route) (members []talos.EtcdMember, err error) {
	for _, name := range []string{"m2", "m3", "m4"} {
		members = append(members, talos.EtcdMember{Name: name})
	}
	if l.counted {
		members = append(members, talos.EtcdMember{Name: "m1"})
	}
	return members, nil
}

// newLeft is a rollout of a control plane of three with four Machines, in which the provider waits for a member that has
// left.
func newLeft(t *testing.T, etcd leftTalos) surplusWorld {
	t.Helper()
	w := newSurplus(t)
	var servers []schema.Server
	for i, name := range []string{"m1", "m2", "m3", "m4"} {
		servers = append(servers, schema.Server{ID: int64(i + 1), Name: name, Status: "running",
			Labels: map[string]string{"caph-cluster-k8s": "owned"}})
	}
	w.Hetzner.SetServers(servers...)
	w.tcp(clustertest.Map{"status": clustertest.Map{"bootstrapped": true, "initialized": true,
		"conditions": []any{clustertest.Map{"type": "EtcdClusterHealthyCondition", "status": "False", "severity": "Warning",
			"message": "expected to have 4 members, got 3", "lastTransitionTime": "2026-05-04T12:00:00Z"}}}})
	w.b.tools.Talos = func([]byte) (talos.Client, error) { return etcd, nil }
	w.b.observer.Tools = w.b.tools
	return w
}

// TestLeftMachine: a wait names the Machine that the provider does not delete, and what to type; with consent it deletes
// it, unless etcd still counts its member.
func TestLeftMachine(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		consent, counted bool
		left             string
	}{
		"told":            {false, false, "m1 m2 m3 m4"},
		"deleted":         {true, false, "m2 m3 m4"},
		"still a member":  {true, true, "m1 m2 m3 m4"},
		"without consent": {false, true, "m1 m2 m3 m4"},
	} {
		w := newLeft(t, leftTalos{counted: tt.counted})
		w.b.tools.Consent = tt.consent
		w.b.observer.Tools = w.b.tools
		because := w.b.observer.Obstacles(w.mgmt, w.cluster.watched(config.DefaultNamespace))
		var said string
		var err error
		for deadline := time.Now().Add(20 * time.Second); said == "" && err == nil &&
			time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			said, err = because(t.Context())
		}
		if w.left() != tt.left {
			t.Errorf("%s: %s are left, want %s", name, w.left(), tt.left)
		}
		if deleted := tt.left == "m2 m3 m4"; deleted != strings.HasPrefix(said, "deleted Machine m1, as agreed: ") ||
			!deleted && (err == nil || !strings.Contains(err.Error(), "bootstrap replace-machine m1")) {
			t.Errorf("%s: it says %q, %v", name, said, err)
		}
	}
}

// TestARolloutThatMayNeverEnd: servers of the control plane are added with consent only where the installed provider is
// known not to end a rollout.
func TestARolloutThatMayNeverEnd(t *testing.T) {
	for _, tt := range []struct {
		version string
		consent bool
		asks    bool
	}{{"v0.5.12", false, true}, {"v0.5.12", true, false}, {"v0.5.13", false, false}} {
		w := clustertest.New(t)
		clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
		cfg := w.Config()
		if _, err := runApply(t, cfg, w.Tools()); err != nil {
			t.Fatal(err)
		}
		clustertest.Configure(t, &cfg, "CONTROL_PLANE_REPLICAS=5")
		installCACPPT(t, w, &cfg, tt.version)
		tools := w.Tools()
		tools.Consent = tt.consent
		_, err := runApply(t, cfg, tools)
		n, _, _ := unstructured.NestedFieldNoCopy(w.Management.Get(clustertest.CACPPT, "TalosControlPlane",
			config.DefaultNamespace, "k8s-control-plane").Object, "spec", "replicas")
		if !tt.asks {
			if err != nil || fmt.Sprint(n) != "5" {
				t.Errorf("%+v: %v; %v servers", tt, err, n)
			}
			continue
		}
		for _, part := range []string{"it may never end: Cluster API control plane provider Talos v0.5.12",
			"upgrade CACPPT_VERSION=v0.5.13", "run again with --yes"} {
			if err == nil || !strings.Contains(err.Error(), part) || fmt.Sprint(n) != "3" {
				t.Errorf("%+v: %v; %v servers", tt, err, n)
			}
		}
	}
}

// installCACPPT has the control plane provider at a version, which is configured, too.
func installCACPPT(t *testing.T, w *clustertest.Environment, cfg *config.Config, version string) {
	t.Helper()
	clustertest.Configure(t, cfg, "CACPPT_VERSION="+version)
	w.Management.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", "control-plane-talos",
		"control-plane-talos", clustertest.Map{"version": version}))
}
