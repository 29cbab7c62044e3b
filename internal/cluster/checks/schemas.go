package checks

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// schemaProblem is what an API server would not take of an object.
type schemaProblem struct{ field, Text string }

// Kinds are the kinds that custom resource definitions bring, by group.
type Kinds map[string][]*apiextensionsv1.CustomResourceDefinition

// Learn reads the definitions out of a provider's manifest.
func (k Kinds) Learn(manifest []byte) error {
	docs, err := kube.Documents(manifest)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		if !strings.Contains(string(doc), "\nkind: CustomResourceDefinition") &&
			!strings.HasPrefix(string(doc), "kind: CustomResourceDefinition") {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(doc, crd); err != nil {
			return fmt.Errorf("read a custom resource definition: %w", err)
		}
		k[crd.Spec.Group] = append(k[crd.Spec.Group], crd)
	}
	return nil
}

// Check says what an API server would not take of an object, and whether its group is known at all.
func (k Kinds) Check(o *unstructured.Unstructured) (wrong []schemaProblem, known bool) {
	gvk := o.GroupVersionKind()
	crds, known := k[gvk.Group]
	if !known {
		return nil, false
	}
	i := slices.IndexFunc(crds,
		func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == gvk.Kind })
	if i < 0 {
		return []schemaProblem{{"kind", "there is no kind " + gvk.Kind + " in " + gvk.Group}}, true
	}
	versions := crds[i].Spec.Versions
	j := slices.IndexFunc(versions,
		func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version && v.Served })
	if j < 0 {
		return []schemaProblem{{"apiVersion", gvk.Kind + " has no version " + gvk.Version}}, true
	}
	wrong, err := schemaProblems(o, versions[j].Schema)
	if err != nil {
		return []schemaProblem{{"", "its schema cannot be read: " + err.Error()}}, true
	}
	return wrong, true
}

// schemaProblems does what an API server does with an object before it asks webhooks: unknown fields, defaults, the
// schema.
func schemaProblems(o *unstructured.Unstructured, of *apiextensionsv1.CustomResourceValidation) ([]schemaProblem,
	error) {
	if of == nil || of.OpenAPIV3Schema == nil {
		return nil, nil
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of.OpenAPIV3Schema, props,
		nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	object := o.DeepCopy().Object
	var wrong []schemaProblem
	for _, field := range pruning.PruneWithOptions(object, structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		wrong = append(wrong, schemaProblem{field, "unknown field " + field})
	}
	defaulting.Default(object, structural)
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	for _, e := range validation.ValidateCustomResource(nil, object, validator) {
		wrong = append(wrong, schemaProblem{e.Field, e.Error()})
	}
	return wrong, nil
}
