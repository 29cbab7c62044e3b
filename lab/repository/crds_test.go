package repository

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	utilyaml "sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/caph"
	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/certmanager"
)

// crdsOf reads the CRDs of a manifest, strictly.
func crdsOf(t *testing.T, manifest []byte) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, document := range documents(manifest) {
		if !strings.Contains(document, "\nkind: CustomResourceDefinition\n") {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(document), crd); err != nil {
			t.Fatal(err)
		}
		crds[crd.Spec.Names.Plural] = crd
	}
	return crds
}

// documents splits a manifest.
func documents(manifest []byte) []string {
	return strings.Split(strings.TrimPrefix("\n"+string(manifest), "\n---"), "\n---\n")
}

// TestCRDsAreValid holds the stand-ins' CRDs against the API server's own
// validation of CRDs.
func TestCRDsAreValid(t *testing.T) {
	manifests := map[string]func() ([]byte, error){
		"caph":         func() ([]byte, error) { m, _, err := CAPHManifest(caphVersion); return m, err },
		"cert-manager": func() ([]byte, error) { return certManagerManifest(DefaultCertManagerVersion) },
	}
	for name, render := range manifests {
		manifest, err := render()
		if err != nil {
			t.Fatal(err)
		}
		crds := crdsOf(t, manifest)
		if len(crds) < 4 {
			t.Errorf("%s: only %d CRDs", name, len(crds))
		}
		for plural, crd := range crds {
			apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			// The API server sets it before it validates.
			crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
			internal := &apiextensions.CustomResourceDefinition{}
			if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd,
				internal, nil); err != nil {
				t.Fatal(err)
			}
			if errs := validation.ValidateCustomResourceDefinition(context.Background(), internal); len(errs) > 0 {
				t.Errorf("%s: %s: %v", name, plural, errs.ToAggregate())
			}
		}
	}
}

// caphVersion is the newest CAPH that the stand-in follows.
var caphVersion = api.Versions()[len(api.Versions())-1]

// originalCRDs are the folders of the original's CRDs, by version. testdata/caph/README.md says where they come from.
var originalCRDs = map[string]string{"v1.0.12": "testdata/caph", "v1.1.8": "testdata/caph-1.1"}

// original reads one of them.
func original(t *testing.T, file string) []byte {
	t.Helper()
	packed, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCAPHsAPIIsTheOriginals: a client of the original finds every field and
// refusal that the schema can express.
func TestCAPHsAPIIsTheOriginals(t *testing.T) {
	for version, folder := range originalCRDs {
		t.Run(version, func(t *testing.T) { compareCRDs(t, version, folder) })
	}
}

func compareCRDs(t *testing.T, version, folder string) {
	manifest, _, err := CAPHManifest(version)
	if err != nil {
		t.Fatal(err)
	}
	ours := crdsOf(t, manifest)
	files, err := filepath.Glob(folder + "/*.yaml.gz")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(ours) {
		t.Errorf("the original has %v, the stand-in %v", files, slices.Sorted(maps.Keys(ours)))
	}
	for _, file := range files {
		theirs := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(original(t, file), theirs); err != nil {
			t.Fatal(err)
		}
		our, ok := ours[theirs.Spec.Names.Plural]
		if !ok {
			t.Errorf("no CRD %s", theirs.Name)
			continue
		}
		compareCRD(t, our, theirs)
	}
}

func compareCRD(t *testing.T, our, their *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	name := their.Name
	if our.Name != name || our.Spec.Group != their.Spec.Group || our.Spec.Scope != their.Spec.Scope {
		t.Errorf("%s: group or scope differs", name)
	}
	if fmt.Sprint(our.Spec.Names) != fmt.Sprint(their.Spec.Names) {
		t.Errorf("%s: names %+v, want %+v", name, our.Spec.Names, their.Spec.Names)
	}
	ourVersion, theirVersion := our.Spec.Versions[0], their.Spec.Versions[0]
	if ourVersion.Name != theirVersion.Name || ourVersion.Subresources == nil || ourVersion.Subresources.Status == nil {
		t.Errorf("%s: version %s without status subresource, want %s with it", name, ourVersion.Name, theirVersion.Name)
	}
	if our, their := columns(ourVersion), columns(theirVersion); !slices.Equal(our, their) {
		t.Errorf("%s: printer columns\n%s\nwant\n%s", name, strings.Join(our, "\n"), strings.Join(their, "\n"))
	}
	compareSchema(t, name, ourVersion.Schema.OpenAPIV3Schema, theirVersion.Schema.OpenAPIV3Schema)
}

// columns are the printer columns without their descriptions.
func columns(version apiextensionsv1.CustomResourceDefinitionVersion) []string {
	var columns []string
	for _, c := range version.AdditionalPrinterColumns {
		columns = append(columns, fmt.Sprintf("%s %s %s %d", c.Name, c.Type, c.JSONPath, c.Priority))
	}
	return columns
}

// compareSchema holds a schema of ours, at path, against the original's.
func compareSchema(t *testing.T, path string, our, their *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if our.Type != their.Type || our.Format != their.Format || our.XIntOrString != their.XIntOrString {
		t.Errorf("%s: type %s %s, want %s %s", path, our.Type, our.Format, their.Type, their.Format)
	}
	if our, their := slices.Sorted(slices.Values(our.Required)), slices.Sorted(
		slices.Values(their.Required)); !slices.Equal(our, their) {
		t.Errorf("%s: required %v, want %v", path, our, their)
	}
	if our, their := enum(our), enum(their); !slices.Equal(our, their) {
		t.Errorf("%s: enum %v, want %v", path, our, their)
	}
	if our, their := limits(our), limits(their); our != their {
		t.Errorf("%s: default and limits %s, want %s", path, our, their)
	}
	if our, their := slices.Sorted(maps.Keys(our.Properties)), slices.Sorted(maps.Keys(their.Properties)); !slices.Equal(
		our, their) {
		t.Errorf("%s: properties %v, want %v", path, our, their)
	}
	for name, property := range our.Properties {
		if theirProperty, ok := their.Properties[name]; ok {
			compareSchema(t, path+"."+name, &property, &theirProperty)
		}
	}
	switch {
	case (our.Items == nil) != (their.Items == nil) ||
		(our.AdditionalProperties == nil) != (their.AdditionalProperties == nil):
		t.Errorf("%s: items or additional properties differ", path)
	case our.Items != nil:
		compareSchema(t, path+"[]", our.Items.Schema, their.Items.Schema)
	case our.AdditionalProperties != nil:
		compareSchema(t, path+"{}", our.AdditionalProperties.Schema, their.AdditionalProperties.Schema)
	}
}

// enum are a schema's permitted values, wherever it states them.
func enum(schema *apiextensionsv1.JSONSchemaProps) []string {
	var values []string
	for _, value := range schema.Enum {
		values = append(values, string(value.Raw))
	}
	for _, part := range schema.AllOf {
		values = append(values, enum(&part)...)
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// limits are a schema's default and bounds as text.
func limits(schema *apiextensionsv1.JSONSchemaProps) string {
	parts := map[string]any{}
	if schema.Default != nil {
		parts["default"] = string(schema.Default.Raw)
	}
	if schema.Minimum != nil {
		parts["minimum"] = *schema.Minimum
	}
	if schema.Maximum != nil {
		parts["maximum"] = *schema.Maximum
	}
	if schema.MinLength != nil {
		parts["minLength"] = *schema.MinLength
	}
	return fmt.Sprint(parts)
}

// TestRolesCoverTheStandInsRules: what a stand-in's code says that it needs,
// its manifest grants.
func TestRolesCoverTheStandInsRules(t *testing.T) {
	manifest, _, err := CAPHManifest(caphVersion)
	if err != nil {
		t.Fatal(err)
	}
	certManager, err := certManagerManifest(DefaultCertManagerVersion)
	if err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(t, manifest)
	maps.Copy(rules, rulesOf(t, certManager))
	for name, needed := range map[string][]rbacv1.PolicyRule{
		"ClusterRole cert-manager-controller": certmanager.Rules(),
		"ClusterRole caph-manager-role":       caph.Rules(),
		"Role caph-leader-election-role":      caph.LeaderElectionRules(),
	} {
		if missing := uncovered(needed, rules[name]); len(missing) > 0 {
			t.Errorf("%s lacks %v", name, missing)
		}
	}
}

// rulesOf are the rules of a manifest's roles, by kind and name.
func rulesOf(t *testing.T, manifest []byte) map[string][]rbacv1.PolicyRule {
	t.Helper()
	objects, err := utilyaml.ToUnstructured(manifest)
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Role" || kind == "ClusterRole" {
			content, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal(content, &role); err != nil {
				t.Fatal(err)
			}
			rules[kind+" "+object.GetName()] = role.Rules
		}
	}
	return rules
}

// uncovered lists each "verb group/resource" that needed has and granted lacks.
func uncovered(needed, granted []rbacv1.PolicyRule) []string {
	var missing []string
	for _, rule := range needed {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !slices.ContainsFunc(granted, func(g rbacv1.PolicyRule) bool {
						return permits(g.APIGroups, group) && permits(g.Resources, resource) && permits(g.Verbs, verb)
					}) {
						missing = append(missing, verb+" "+group+"/"+resource)
					}
				}
			}
		}
	}
	return missing
}

// permits says whether a rule's list names a value, or all.
func permits(list []string, value string) bool {
	return slices.Contains(list, value) || slices.Contains(list, "*")
}
