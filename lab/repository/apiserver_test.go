package repository

import (
	"context"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
)

// TestAnAPIServerTakesItAll gives all manifests, and all charts as they render,
// to a real API server that refuses unknown fields.
func TestAnAPIServerTakesItAll(t *testing.T) {
	_, access := planetest.Start(t, nil)
	contents := write(t, t.TempDir())
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(access, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c = client.WithFieldValidation(c, "Strict")

	var objects []unstructured.Unstructured
	manifest, err := certManagerManifest(DefaultCertManagerVersion)
	if err != nil {
		t.Fatal(err)
	}
	installed, err := utilyaml.ToUnstructured(manifest)
	if err != nil {
		t.Fatal(err)
	}
	objects = append(objects, installed...)
	for _, components := range clusterctlComponents(t, contents) {
		objects = append(objects, components.Objs()...)
	}
	isCRD := func(o unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" }
	for _, object := range objects {
		if isCRD(object) {
			create(t, c, object)
		}
	}
	for _, object := range objects {
		if isCRD(object) {
			established(t, c, object.GetName())
		}
	}
	checkDefaults(t, c) // before the webhooks, which have no server here
	for _, object := range slices.DeleteFunc(objects, isCRD) {
		create(t, c, object)
	}
	for _, source := range chartSources {
		values := ""
		if source.name == "cluster-autoscaler" {
			values = "cloudProvider: clusterapi\n"
		}
		for _, object := range mustRender(t, source.name, source.name, values) {
			if object.GroupVersionKind().Group == "talos.dev" {
				continue // Talos brings the kind
			}
			create(t, c, object)
		}
	}
}

// checkDefaults makes the smallest objects of CAPH's kinds and asserts what the
// API server fills in and refuses.
func checkDefaults(t *testing.T, c client.Client) {
	t.Helper()
	cluster := unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"controlPlaneRegions":      []any{"nbg1"},
			"controlPlaneEndpoint":     map[string]any{"host": "", "port": int64(6443)},
			"controlPlaneLoadBalancer": map[string]any{"region": "nbg1"},
			"hcloudNetwork":            map[string]any{"enabled": true},
			"hcloudPlacementGroups":    []any{map[string]any{"name": "control-plane"}},
			"hetznerSecretRef":         map[string]any{"key": map[string]any{}},
			"sshKeys":                  map[string]any{"hcloud": []any{}},
		},
	}}
	cluster.SetGroupVersionKind(schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1",
		Kind: "HetznerCluster"})
	cluster.SetName("k8s")
	cluster.SetNamespace("default")
	refused := *cluster.DeepCopy()
	if err := unstructured.SetNestedStringSlice(refused.Object, []string{
		"atlantis",
	}, "spec", "controlPlaneRegions"); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &refused); !apierrors.IsInvalid(err) {
		t.Errorf("a region that does not exist: %v", err)
	}
	if err := c.Create(t.Context(), &cluster); err != nil {
		t.Fatal(err)
	}
	for want, path := range map[any][]string{
		"round_robin":  {"spec", "controlPlaneLoadBalancer", "algorithm"},
		"lb11":         {"spec", "controlPlaneLoadBalancer", "type"},
		int64(6443):    {"spec", "controlPlaneLoadBalancer", "port"},
		true:           {"spec", "controlPlaneLoadBalancer", "enabled"},
		"10.0.0.0/16":  {"spec", "hcloudNetwork", "cidrBlock"},
		"hetzner":      {"spec", "hetznerSecretRef", "name"},
		"hcloud-token": {"spec", "hetznerSecretRef", "key", "hcloudToken"},
	} {
		if got, _, err := unstructured.NestedFieldNoCopy(cluster.Object, path...); err != nil || got != want {
			t.Errorf("%v is %v, want %v (%v)", path, got, want, err)
		}
	}
}

// create makes an object.
func create(t *testing.T, c client.Client, object unstructured.Unstructured) {
	t.Helper()
	if err := c.Create(t.Context(), &object); err != nil {
		t.Errorf("%s %s/%s: %v", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
}

// established waits until the API server serves a CRD.
func established(t *testing.T, c client.Client, name string) {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			if err := c.Get(ctx, client.ObjectKey{Name: name}, &crd); err != nil {
				return false, err
			}
			return slices.ContainsFunc(crd.Status.Conditions,
				func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
					return condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
				}), nil
		})
	if err != nil {
		t.Fatalf("CRD %s is not served: %v; conditions %v", name, err, crd.Status.Conditions)
	}
}
