package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
)

func TestTheSnapshotGoesToOneServer(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	target, err := w.r.chooseTarget(t.Context(), w.say, m, c)
	if err != nil || target.Server != "k8s-control-plane-0" {
		t.Fatalf("%+v, %v", target, err)
	}
	w.etcd.booting = 1
	for range 2 { // and again, as after a kill
		if _, err := w.r.uploadSnapshot(t.Context(), w.say, m, c, target); err != nil {
			t.Fatal(err)
		}
		if _, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c, target); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(w.etcd.calls, []string{"upload 127.0.1.0", "bootstrap 127.0.1.0"}) ||
		w.etcd.uploaded["127.0.1.0"] != theSnapshot {
		t.Errorf("the servers were asked %v", w.etcd.calls)
	}
}

// TestAResetServerGetsTheSnapshotInGoodTime: what etcd-recover has uploaded is lost, and is uploaded again by the step
// after it. A snapshot takes longer than a question.
func TestAResetServerGetsTheSnapshotInGoodTime(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	w.r.cfg.ControlPlaneTimeout = config.Duration(20 * time.Minute)
	if _, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c,
		recovery.Target{Server: "k8s-control-plane-0"}); err != nil {
		t.Fatal(err)
	}
	if w.etcd.patient < 10*time.Minute || len(w.etcd.calls) != 2 {
		t.Errorf("the upload was given %s: %v", w.etcd.patient, w.etcd.calls)
	}
}

func TestAServerWithEtcdIsTheTarget(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	w.etcd.data["127.0.1.2"] = true
	target, err := w.r.chooseTarget(t.Context(), w.say, m, c)
	if err != nil || target.Server != "k8s-control-plane-2" {
		t.Errorf("%+v, %v", target, err)
	}
	if _, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c,
		recovery.Target{Server: "k8s-control-plane-0"}); err != nil || len(w.etcd.calls) > 0 {
		t.Errorf("%v, with an etcd on another server it was asked %v", err, w.etcd.calls)
	}
}

func TestNoEtcdIsMadeWhileAServerIsSilent(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	w.r.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	w.etcd.silent["127.0.1.1"] = true
	if _, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c,
		recovery.Target{Server: "k8s-control-plane-0"}); err == nil || !strings.Contains(err.Error(), "connection refused") ||
		len(w.etcd.calls) > 0 {
		t.Errorf("%v, and was asked %v", err, w.etcd.calls)
	}
}

func TestAlreadyThereIsLookedInto(t *testing.T) {
	for _, c := range []struct {
		what     string
		uid      string
		Revision int64
		want     string
	}{
		{"the snapshot's cluster", "workload", 1, ""},
		{"another cluster", "the one that was lost", 1, "another cluster answers"},
		{"an older etcd", "workload", 5, "at revision 1"},
	} {
		w := newRestoreWorld(t)
		m, cluster := w.prepare(t)
		w.source.Contents.Header.UID, w.source.Contents.Header.Etcd.Revision = c.uid, c.Revision
		w.etcd.data["127.0.1.0"] = true
		_, err := w.r.bootstrapRecovered(t.Context(), w.say, m, cluster,
			recovery.Target{Server: "k8s-control-plane-0"})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || len(w.etcd.calls) > 0 {
			t.Errorf("%s: %v, and was asked %v", c.what, err, w.etcd.calls)
		}
	}
}

func TestARefusalOfBootstrapIsNoSuccess(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	w.r.cfg.ControlPlaneTimeout = config.Duration(300 * time.Millisecond)
	w.etcd.refuse = fmt.Errorf("%w: AlreadyExists", talos.ErrEtcdData)
	if _, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c,
		recovery.Target{Server: "k8s-control-plane-0"}); err == nil {
		t.Error("a server that says that it has data, and shows none, counts as restored")
	}
}

func TestTheProviderIsLetGoOnlyWithEtcdEverywhere(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	w.Management.Put(kubetest.Object(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		map[string]any{"status": map[string]any{"bootstrapped": true}}))
	w.etcd.data["127.0.1.0"], w.etcd.data["127.0.1.1"] = true, true
	if _, err := w.r.releaseControlPlane(t.Context(), w.say, m, c); err == nil ||
		!capi.Truth(w.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane"),
			"status", "bootstrapped") {
		t.Errorf("it was let go with a server without etcd: %v", err)
	}
	w.etcd.data["127.0.1.2"] = true
	w.Management.React = func(o *unstructured.Unstructured) {
		if o.GetKind() == "TalosControlPlane" && !capi.Truth(o, "status", "bootstrapped") {
			w.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				map[string]any{"status": map[string]any{
					"bootstrapped": true,
					"conditions":   []any{map[string]any{"type": recovery.BootstrappedCondition, "status": "True"}}}})
		}
	}
	if _, err := w.r.releaseControlPlane(t.Context(), w.say, m, c); err != nil {
		t.Error(err)
	}
}

// TestTwoEtcdsAreNotOne: servers of the same names that are in two etcds are distinguished by their members' IDs, which
// each server's own member is asked for.
func TestTwoEtcdsAreNotOne(t *testing.T) {
	w := newRestoreWorld(t)
	_, c := w.prepare(t)
	etcdOf := func(first uint64) []talos.EtcdMember {
		return []talos.EtcdMember{{ID: first, Name: "k8s-control-plane-0"}, {ID: first + 1, Name: "k8s-control-plane-1"},
			{ID: first + 2, Name: "k8s-control-plane-2"}}
	}
	w.etcd.members = func(talos.Route) []talos.EtcdMember { return etcdOf(1) }
	mgmt, err := connect.Cluster(w.r.tools, platform.ManagementKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if out, missing, err := w.r.membership(t.Context(), mgmt, c); err != nil || missing != "" ||
		len(out.Members) != 3 {
		t.Errorf("of one etcd: %+v, %q, %v", out, missing, err)
	}
	w.etcd.members = func(r talos.Route) []talos.EtcdMember {
		if r.Endpoint == "127.0.1.2" {
			return etcdOf(7)
		}
		return etcdOf(1)
	}
	if _, missing, err := w.r.membership(t.Context(), mgmt, c); err != nil ||
		!strings.Contains(missing, "k8s-control-plane-2: its etcd counts others") {
		t.Errorf("of two etcds: %q, %v", missing, err)
	}
}

// TestAnEtcdThatFailsIsNotWaitedFor, also where the server is reached through another.
func TestAnEtcdThatFailsIsNotWaitedFor(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	c.LoadBalancerIP = "127.0.0.7"
	for i := range 3 {
		w.etcd.silent[fmt.Sprintf("127.0.1.%d", i)] = true // the firewall
	}
	w.etcd.data["127.0.0.7"] = true
	w.etcd.state = func(r talos.Route) (string, error) {
		if r.Endpoint != "127.0.0.7" || r.Node == "" {
			return "", errors.New("connection refused")
		}
		return etcdview.Failed, nil
	}
	_, err := w.r.bootstrapRecovered(t.Context(), w.say, m, c, recovery.Target{Server: "k8s-control-plane-0"})
	if err == nil || !strings.Contains(err.Error(), "does not come up on what it has restored") {
		t.Errorf("%v", err)
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
		{state: etcdview.Preparing, made: true},
		{state: etcdview.Failed, made: true}, // it has waited for half an hour
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
			return etcdview.Preparing, nil
		}
		_, err := w.r.bootstrapRecovered(t.Context(), w.say, m, cluster,
			recovery.Target{Server: "k8s-control-plane-0"})
		if made := len(w.etcd.calls) > 0; made != c.made || (err == nil) != c.made {
			t.Errorf("with a server whose etcd is %q (%v): %v, and was asked %v", c.state, c.err, err, w.etcd.calls)
		}
		if !c.made && !strings.Contains(err.Error(), "k8s-control-plane-1") {
			t.Errorf("with a server whose etcd is %q (%v): %v", c.state, c.err, err)
		}
	}
}

// Another snapshot may lie on the server, as large as the right one: an etcd that is restored twice has snapshots of
// one size.
func TestARestoreUploadsOverAnotherSnapshotOfTheSameSize(t *testing.T) {
	w := newRestoreWorld(t)
	m, c := w.prepare(t)
	const address = "127.0.1.0"
	w.etcd.uploaded[address] = strings.ToUpper(theSnapshot)
	target := recovery.Target{Server: "k8s-control-plane-0"}
	for range 2 { // once is enough: the server may be restoring what lies on it
		if _, err := w.r.uploadSnapshot(t.Context(), w.say, m, c, target); err != nil {
			t.Fatal(err)
		}
	}
	if w.etcd.uploaded[address] != theSnapshot || !slices.Equal(w.etcd.calls, []string{"upload " + address}) {
		t.Errorf("the server has %q, after %v", w.etcd.uploaded[address], w.etcd.calls)
	}
}
