package restore

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/steps"
)

func TestStaleControllersAreStoppedAndSwept(t *testing.T) {
	w := newRestoreWorld(t)
	kc := w.restored(t, nil)
	if _, err := w.r.quietStale(t.Context(), w.say, kc, recovery.Etcd{}); err != nil {
		t.Fatal(err)
	}
	first := w.Workload.Writes()[0]
	if first.Method != http.MethodPatch || !strings.HasSuffix(first.Path, "/deployments/caph") {
		t.Errorf("the first change of the restored cluster is %v: its CAPH makes servers meanwhile", first)
	}
	if n := capi.Number(w.Workload.Get("apps/v1", "Deployment", "caph-system", "caph"), "spec", "replicas"); n != 0 {
		t.Errorf("the stale CAPH has %d replicas", n)
	}
	swept, err := w.r.sweepStale(t.Context(), w.say, kc, steps.Management{}, steps.Cluster{})
	if err != nil || !slices.Equal(swept.Nodes, []string{"lost"}) ||
		!slices.Equal(swept.Paused, []string{"default/shop", "team/shop"}) {
		t.Fatalf("%+v, %v", swept, err)
	}
	for _, gone := range []*unstructured.Unstructured{
		w.Workload.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s"), w.Workload.Get("v1", "Node", "", "lost"),
		w.Workload.Get("v1", "Pod", "shop", "lost"),
		w.Workload.Get("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "caph"),
		w.Workload.Get("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", "caph-system", "infrastructure-hetzner"),
	} {
		if gone != nil {
			t.Errorf("%s %s is still there", gone.GetKind(), gone.GetName())
		}
	}
	for _, kept := range []*unstructured.Unstructured{
		w.Workload.Get("v1", "Node", "", "k8s-control-plane-0"), w.Workload.Get("v1", "Pod", "shop", "k8s-control-plane-0"),
		w.Workload.Get("v1", "Pod", "shop", "waits"),
		w.Workload.Get("v1", "Node", "", "dedicated"), w.Workload.Get("v1", "Pod", "shop", "dedicated"),
		w.Workload.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "shop"), w.Workload.Get(clustertest.CAPI,
			"Cluster",
			"team", "shop"),
		w.Workload.Get("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "shop"),
	} {
		if kept == nil {
			t.Error("something that is not stale is gone")
		}
	}
	for _, namespace := range []string{config.DefaultNamespace, "team"} {
		if other := w.Workload.Get(clustertest.CAPI, "Cluster", namespace, "shop"); other != nil &&
			!connect.Paused(other) {
			t.Errorf("cluster %s/shop is not paused: its stale objects are acted upon as soon as the providers are back",
				namespace)
		}
	}
	if n := capi.Number(w.Workload.Get("apps/v1", "Deployment", "shop", "web"), "spec", "replicas"); n != 2 {
		t.Errorf("somebody's Deployment has %d replicas", n)
	}
	if network := capi.Text(w.Workload.Get("v1", "Secret", "kube-system", config.CCMSecretName), "data",
		render.HCloudNetworkKey); network != base64.StdEncoding.EncodeToString([]byte("78")) {
		t.Errorf("the cloud controller manager is told of network %q", network)
	}
}

func TestWhatWasMovedIntoTheClusterIsNotStale(t *testing.T) {
	w := newRestoreWorld(t)
	kc := w.restored(t, map[string]any{capi.RestoredAnnotation: "5a5a"})
	if _, err := w.r.quietStale(t.Context(), w.say, kc, recovery.Etcd{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.r.sweepStale(t.Context(), w.say, kc, steps.Management{}, steps.Cluster{}); err != nil {
		t.Fatal(err)
	}
	if w.Workload.Get(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s") == nil ||
		capi.Number(w.Workload.Get("apps/v1", "Deployment", "caph-system", "caph"), "spec", "replicas") != 1 {
		t.Error("what this restore's own pivot moved was taken for stale")
	}
	if connect.Paused(w.Workload.Get(clustertest.CAPI, "Cluster", "team", "shop")) {
		t.Error("a cluster that somebody may have let go since is paused again")
	}
}
