package repository

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"
)

// lines are rules in the form of testdata/rules.yaml, one for each resource.
func lines(rules []rbacv1.PolicyRule) []string {
	var all []string
	for _, r := range rules {
		verbs := slices.Sorted(slices.Values(r.Verbs))
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				name := strings.TrimPrefix(group+"/"+resource, "/")
				if len(r.ResourceNames) > 0 {
					name += "[" + strings.Join(r.ResourceNames, " ") + "]"
				}
				all = append(all, name+": "+strings.Join(verbs, " "))
			}
		}
	}
	slices.Sort(all)
	return all
}

// TestRightsAreTheOriginals: a stand-in that may do more than the original hides what the original is refused.
func TestRightsAreTheOriginals(t *testing.T) {
	data, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var originals map[string][]string
	if err := yaml.UnmarshalStrict(data, &originals); err != nil {
		t.Fatal(err)
	}
	check := func(what string, objects []unstructured.Unstructured, role string, want ...string) {
		t.Helper()
		slices.Sort(want)
		object := find(t, objects, "ClusterRole", role)
		if got := lines(typed[rbacv1.ClusterRole](t, object).Rules); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: the rights are\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for label := range object.GetLabels() {
			if strings.Contains(label, "aggregate") {
				t.Errorf("%s: the label %s gives others its rights", what, label)
			}
		}
		for _, o := range objects {
			if o.GetKind() != "ClusterRoleBinding" {
				continue
			}
			if ref := typed[rbacv1.ClusterRoleBinding](t, o).RoleRef; ref.Name != role {
				t.Errorf("%s: %s binds %s", what, o.GetName(), ref.Name)
			}
		}
	}
	base := originals["caph v1.0.7 caph-manager-role"]
	for version, want := range map[string][]string{
		"v1.0.7": base, "v1.0.12": slices.Concat(base, originals["caph v1.0.12 more than v1.0.7"]),
		"v1.1.8": slices.Concat(base, originals["caph v1.0.12 more than v1.0.7"], originals["caph v1.1.8 more than v1.0.12"]),
	} {
		manifest, _, err := CAPHManifest(version)
		if err != nil {
			t.Fatal(err)
		}
		objects, err := utilyaml.ToUnstructured(manifest)
		if err != nil {
			t.Fatal(err)
		}
		check("CAPH "+version, objects, "caph-manager-role", slices.Clone(want)...)
	}
	for _, chart := range []string{"hcloud-cloud-controller-manager", "talos-cloud-controller-manager"} {
		check(chart, mustRender(t, chart, chart, ""), "system:"+chart, originals[chart]...)
	}
	check("hcloud-csi", mustRender(t, "hcloud-csi", "hcloud-csi", ""), "hcloud-csi-controller", originals["hcloud-csi"]...)
	check("cluster-autoscaler", mustRender(t, "cluster-autoscaler", "cluster-autoscaler", "cloudProvider: clusterapi\n"),
		"cluster-autoscaler-clusterapi-cluster-autoscaler", originals["cluster-autoscaler"]...)
}
