package steps

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/clustertest"
	"github.com/slipway-k8s/slipway/internal/situation"
)

// newEtcdAwaited has three servers that wait for etcd.
func newEtcdAwaited(t *testing.T) surplusWorld {
	t.Helper()
	w := newSurplus(t)
	w.Environment.Management.Remove(clustertest.CAPI, "Machine", config.Namespace, "m4")
	w.Environment.Management.Remove(clustertest.CAPH, "HCloudMachine", config.Namespace, "m4")
	w.tcp(clustertest.Map{"status": clustertest.Map{"conditions": []any{}}})
	return w
}

// requested is when the control plane provider was asked to look; empty: it was not.
func (w surplusWorld) requested() string {
	return w.Environment.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.Namespace,
		"k8s-control-plane").GetAnnotations()[capi.EtcdRequestedAnnotation]
}

func TestEtcdIsRequestedOnceAllServersWaitForIt(t *testing.T) {
	t.Parallel()
	w := newEtcdAwaited(t)
	r := etcdRequest{mgmt: w.mgmt}
	if err := r.look(t.Context(), t.Logf, w.see(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := time.Parse(time.RFC3339, w.requested()); err != nil {
		t.Fatalf("the annotation is %q: %v", w.requested(), err)
	}
	writes := func() int { return len(w.Environment.Management.Writes()) }
	before := writes()
	if err := r.look(t.Context(), t.Logf, w.see(t)); err != nil || writes() != before {
		t.Errorf("at once it asks again: %d requests, %v", writes()-before, err)
	}
	for range etcdRequests + 2 {
		r.last = time.Now().Add(-etcdRequestPause)
		if err := r.look(t.Context(), t.Logf, w.see(t)); err != nil {
			t.Fatal(err)
		}
	}
	if more := writes() - before; more != etcdRequests-1 {
		t.Errorf("it asked %d times more, want %d", more, etcdRequests-1)
	}
}

// The provider is left alone where it is not to bootstrap etcd, or cannot yet.
func TestEtcdIsNotRequested(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(surplusWorld){
		"a server does not wait yet": func(w surplusWorld) { w.talos.state = map[string]string{"127.0.1.2": "Waiting"} },
		"etcd runs":                  func(w surplusWorld) { w.talos.state = map[string]string{"127.0.1.1": "Running"} },
		"a Machine has no server":    func(w surplusWorld) { w.serverless("m3") },
		"one Machine too many":       func(w surplusWorld) { w.machine(4) },
		"bootstrapped": func(w surplusWorld) {
			w.tcp(clustertest.Map{"status": clustertest.Map{"bootstrapped": true}})
		},
		"initialized": func(w surplusWorld) {
			w.tcp(clustertest.Map{"status": clustertest.Map{"initialized": true}})
		},
		"the control plane is paused": func(w surplusWorld) {
			w.tcp(clustertest.Map{"metadata": clustertest.Map{"annotations": clustertest.Map{situation.PausedAnnotation: ""}}})
		},
		"the cluster is paused": func(w surplusWorld) {
			w.Environment.Management.Change(clustertest.CAPI, "Cluster", config.Namespace, "k8s",
				clustertest.Map{"spec": clustertest.Map{"paused": true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEtcdAwaited(t)
			change(w)
			r := etcdRequest{mgmt: w.mgmt}
			if err := r.look(t.Context(), t.Logf, w.see(t)); err != nil {
				t.Fatal(err)
			}
			if w.requested() != "" {
				t.Error("the provider was asked to look")
			}
		})
	}
}
