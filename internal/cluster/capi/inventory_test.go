package capi_test

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

type object = map[string]any

const namespace = "default"

func connect(t *testing.T) (*kubetest.Server, *kube.Cluster) {
	t.Helper()
	s := kubetest.New("cluster",
		kubetest.Resource{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Cluster", Plural: "clusters"},
		kubetest.Resource{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine", Plural: "machines"},
	)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	c, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// define tells of a kind, whether it is served or not.
func define(s *kubetest.Server, kind, plural string) {
	s.Put(kubetest.Object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+".cluster.x-k8s.io", object{
		"metadata": object{"labels": object{"clusterctl.cluster.x-k8s.io": ""}},
		"spec": object{"group": "cluster.x-k8s.io", "scope": "Namespaced", "names": object{"kind": kind},
			"versions": []any{object{"name": "v1alpha4", "storage": false}, object{"name": "v1beta1", "storage": true}}},
	}))
}

func names(objects []unstructured.Unstructured) []string {
	var all []string
	for _, o := range objects {
		all = append(all, capi.ObjectKeyOf(&o).String())
	}
	return all
}

func TestInventoryFollowsOwners(t *testing.T) {
	s, c := connect(t)
	define(s, "Cluster", "clusters")
	define(s, "Machine", "machines")
	put := func(apiVersion, kind, name, owner string, labels object) {
		metadata := object{"uid": kind + "-" + name, "labels": labels}
		if owner != "" {
			metadata["ownerReferences"] = []any{object{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": owner}}
		}
		s.Put(kubetest.Object(apiVersion, kind, namespace, name, object{"metadata": metadata}))
	}
	put("cluster.x-k8s.io/v1beta1", "Cluster", "k8s", "", nil)
	put("cluster.x-k8s.io/v1beta1", "Machine", "m1", "Cluster-k8s", nil)
	put("cluster.x-k8s.io/v1beta1", "Machine", "stray", "", nil) // of no cluster
	put("v1", "Secret", "m1-bootstrap-data", "Machine-m1", nil)
	put("v1", "Secret", "k8s-kubeconfig", "", nil)   // clusterctl knows the name
	put("v1", "Secret", "other-kubeconfig", "", nil) // but not this one
	put("v1", "Secret", "k8s-talos", "", nil)        // nor this
	put("v1", "Secret", "of-the-cluster", "", object{"cluster.x-k8s.io/cluster-name": "k8s"})
	put("v1", "Secret", config.TokenSecretName, "", nil)
	put("v1", "ConfigMap", "labelled", "", object{capi.MoveLabel: ""})
	put("v1", "ConfigMap", "k8s-ca", "", nil) // no Secret

	inv, err := capi.ReadInventory(t.Context(), c, namespace)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"Cluster k8s", "ConfigMap labelled", "Machine m1", "Secret k8s-kubeconfig",
		"Secret m1-bootstrap-data"}
	if is := names(inv.Moved); !slices.Equal(is, want) {
		t.Errorf("moved: %v, want %v", is, want)
	}
	want = []string{"Secret hetzner", "Secret k8s-talos", "Secret of-the-cluster"}
	if is := names(inv.Loose); !slices.Equal(is, want) {
		t.Errorf("loose: %v, want %v", is, want)
	}
	if is := inv.Clusters(); !slices.Equal(is, []string{"k8s"}) || len(inv.Marked()) > 0 {
		t.Errorf("clusters %v, marked %v", is, inv.Marked())
	}
}

// TestSilenceIsNotAbsence: an API server that has just started knows definitions whose kinds it does not serve yet.
func TestSilenceIsNotAbsence(t *testing.T) {
	s, c := connect(t)
	if all, err := capi.Clusters(t.Context(), c); err != nil || len(all) > 0 {
		t.Errorf("without Cluster API: %v, %v", all, err)
	}
	if inv, err := capi.ReadInventory(t.Context(), c, namespace); err != nil || len(inv.All()) > 0 {
		t.Errorf("without Cluster API: %v, %v", inv, err)
	}
	define(s, "Cluster", "clusters")
	define(s, "MachinePool", "machinepools") // not served
	if all, err := capi.Clusters(t.Context(), c); err != nil || len(all) > 0 {
		t.Errorf("without a Cluster: %v, %v", all, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // it is waited for
	defer cancel()
	if _, err := capi.ReadInventory(ctx, c, namespace); err == nil {
		t.Error("a kind that is not served counts as one without objects")
	}
	s.Close()
	if _, err := capi.Clusters(t.Context(), c); err == nil {
		t.Error("a cluster that does not answer counts as one without Clusters")
	}
}

// TestKindsOfAJustStartedAPIServer: it serves the definitions some time before the kinds that they define.
func TestKindsOfAJustStartedAPIServer(t *testing.T) {
	s, c := connect(t)
	define(s, "Cluster", "clusters")
	s.Put(kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", namespace, "k8s", nil))
	var refused atomic.Int32
	s.Fail = func(r *http.Request) (int, string) {
		if r.URL.Path == "/apis/cluster.x-k8s.io/v1beta1" && refused.Add(1) <= 3 {
			return http.StatusNotFound, "the server could not find the requested resource"
		}
		return 0, ""
	}
	clusters, err := capi.Clusters(t.Context(), c)
	if err != nil || len(clusters) != 1 || refused.Load() < 4 {
		t.Errorf("%d clusters after %d requests: %v", len(clusters), refused.Load(), err)
	}
}

func TestDifferences(t *testing.T) {
	secret := func() *unstructured.Unstructured {
		return kubetest.Object("v1", "Secret", namespace, "s", object{
			"metadata": object{
				"labels": object{"l": "1"}, "annotations": object{"a": "1"}, "finalizers": []any{"f"}, "uid": "1",
				"resourceVersion": "1",
				"ownerReferences": []any{object{"apiVersion": "g/v1", "kind": "Owner", "name": "o", "uid": "1",
					"controller": true}},
			},
			"data": object{"key": "geheim"}, "type": "Opaque",
		})
	}
	set := func(value any, fields ...string) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, fields...) }
	}
	owner := func(fields object) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) {
			ref := object{"apiVersion": "g/v1", "kind": "Owner", "name": "o", "uid": "2", "controller": true}
			maps.Copy(ref, fields)
			_ = unstructured.SetNestedSlice(o.Object, []any{ref}, "metadata", "ownerReferences")
		}
	}
	for name, tt := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   string // empty: no difference
		mend   bool
	}{
		"nothing":                 {change: func(*unstructured.Unstructured) {}, mend: true},
		"what a server gives out": {change: set("2", "metadata", "uid"), mend: true},
		"status":                  {change: set("x", "status", "phase"), mend: true},
		"an owner's new UID":      {change: owner(nil), mend: true},
		"another finalizer": {change: func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"f", "g"}) },
			mend: true},
		"a label": {change: set("2", "metadata", "labels", "l"), want: "metadata.labels[l]", mend: true},
		"a lost annotation": {change: func(o *unstructured.Unstructured) { o.SetAnnotations(nil) },
			want: "metadata.annotations[a]", mend: true},
		"a lost finalizer": {change: func(o *unstructured.Unstructured) { o.SetFinalizers(nil) },
			want: "metadata.finalizers: no f"},
		"another owner":               {change: owner(object{"name": "p"}), want: "metadata.ownerReferences"},
		"an owner that controls less": {change: owner(object{"controller": false}), want: "metadata.ownerReferences"},
		"data":                        {change: set("other", "data", "key"), want: "data.key"},
		"more data":                   {change: set("x", "data", "more"), want: "data.more"},
		"type":                        {change: set("x", "type"), want: "type"},
		"deletion": {change: set("2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
			want: "metadata.deletionTimestamp"},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := secret(), secret()
			tt.change(is)
			found := capi.Differences(was, is)
			text := strings.Join(found, ", ")
			switch {
			case tt.want == "" && len(found) > 0:
				t.Errorf("found %v", found)
			case !strings.Contains(text, tt.want):
				t.Errorf("found %v, not %s", found, tt.want)
			case capi.MetadataOnly(found) != tt.mend:
				t.Errorf("can be mended: %v", !tt.mend)
			case strings.Contains(text, "geheim") || strings.Contains(text, "other"):
				t.Errorf("a value stands in %v", found)
			}
		})
	}
	cluster := kubetest.Object("cluster.x-k8s.io/v1beta1", "Cluster", namespace, "k8s", object{"spec": object{"x": "y"}})
	pausedOne := cluster.DeepCopy()
	set(true, "spec", "paused")(pausedOne)
	if found := capi.Differences(pausedOne, cluster); len(found) > 0 {
		t.Errorf("a pause counts: %v", found)
	}
}
