package kube_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// The webhook of Cluster API's core is on the server that is lost: objects are read, and deleted, as they are stored.
func TestObjectsAreReadWithoutTheConversionWebhook(t *testing.T) {
	const group, infrastructure = "cluster.x-k8s.io", "infrastructure.cluster.x-k8s.io"
	s, c := connect(t,
		kubetest.Resource{Group: group, Version: "v1beta2", Kind: "Machine", Plural: "machines"},
		kubetest.Resource{Group: group, Version: "v1beta1", Kind: "Machine", Plural: "machines"},
		kubetest.Resource{Group: infrastructure, Version: "v1beta1", Kind: "HCloudMachine", Plural: "hcloudmachines"},
	)
	down := `conversion webhook for cluster.x-k8s.io/v1beta2, Kind=Machine failed: Post "https://capi": refused`
	s.Fail = func(r *http.Request) (int, string) {
		switch {
		case strings.HasSuffix(r.URL.Path, group+"/v1beta1/namespaces/default/machines"):
			return http.StatusTooManyRequests, "storage is (re)initializing: failed to list: " + down
		case strings.Contains(r.URL.Path, group+"/v1beta1/namespaces/"):
			return http.StatusInternalServerError, down
		}
		return 0, ""
	}
	s.Put(kubetest.Object(group+"/v1beta2", "Machine", "default", "m", map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
		"spec": map[string]any{"clusterName": "k8s", "providerID": "hcloud://1", "infrastructureRef": map[string]any{
			"apiGroup": infrastructure, "kind": "HCloudMachine", "name": "server"}},
		"status": map[string]any{"phase": "Running", "initialization": map[string]any{"infrastructureProvisioned": true},
			"deprecated": map[string]any{"v1beta1": map[string]any{"conditions": []any{map[string]any{"type": "Ready",
				"status": "False", "reason": "Old", "lastTransitionTime": "2026-05-04T12:00:00Z"}}}}},
	}))
	asV1beta1 := func(o *unstructured.Unstructured) {
		t.Helper()
		version, _, _ := unstructured.NestedString(o.Object, "spec", "infrastructureRef", "apiVersion")
		ready, _, _ := unstructured.NestedBool(o.Object, "status", "infrastructureReady")
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		if o.GetAPIVersion() != group+"/v1beta1" || o.GetKind() != "Machine" || o.GetUID() == "" ||
			version != infrastructure+"/v1beta1" || !ready || len(conditions) != 1 {
			t.Errorf("read %v", o.Object)
		}
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(group + "/v1beta1")
	o.SetKind("Machine")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m"}, o); err != nil {
		t.Fatal(err)
	}
	asV1beta1(o)
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(group + "/v1beta1")
	l.SetKind("MachineList")
	if err := c.List(t.Context(), l, client.InNamespace("default"), client.MatchingLabels{"a": "b"}); err != nil ||
		len(l.Items) != 1 || l.GetAPIVersion() != group+"/v1beta1" {
		t.Fatalf("%d objects of %s, %v", len(l.Items), l.GetAPIVersion(), err)
	}
	asV1beta1(&l.Items[0])
	for patch, taken := range map[string]bool{`{"metadata":{"annotations":{"b":"c"}}}`: true, `{"spec":{"clusterName":"other"}}`: false} {
		if err := c.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); (err == nil) != taken {
			t.Errorf("%s: %v", patch, err)
		}
	}
	if s.Get(group+"/v1beta2", "Machine", "default", "m").GetAnnotations()["b"] != "c" {
		t.Error("its metadata are not changed")
	}
	if err := c.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if s.Get(group+"/v1beta2", "Machine", "default", "m") != nil {
		t.Error("it is not deleted")
	}
	down = "etcdserver: no leader"
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "m"}, o); err == nil ||
		!strings.Contains(err.Error(), down) {
		t.Errorf("another error is %v", err)
	}
}
