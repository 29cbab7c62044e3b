package steps

import (
	"context"
	"errors"
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

	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/providers"
)

// largestComponents bounds a provider's manifest; Cluster API's own, the largest, has 1 MiB.
const largestComponents = 16 << 20

// schemas reports what checkSchemas finds: what an API server would refuse once the management cluster stands is refused before anything
// is made. Unlike a run, it fetches the schemas where they are not on this machine.
func (d *Doctor) schemas(ctx context.Context) Finding {
	objects, err := renderedForChecks(d.b.cfg, d.b.sources)
	if err != nil {
		return failed("see the check manifests", "%v", err)
	}
	wrong, held, err := checkSchemas(d.b.cfg, d.b.sources, objects, func(p providers.Provider, name string) ([]byte, string, error) {
		return d.file(ctx, p, name, largestComponents)
	})
	var missing *missingError
	switch {
	case errors.As(err, &missing):
		return unknown("see the check providers", "%v", err)
	case err != nil:
		return unknown("the API server judges the objects when they are applied", "%v", err)
	case len(wrong) > 0:
		return wrong[0].finding()
	}
	if others := len(objects) - held; others > 0 {
		return unknown("the API server judges them when they are applied", "%d objects fit the providers' schemas; %d are of kinds that no provider brings", held, others)
	}
	return ok("%d objects fit the schemas of the providers' versions", held)
}

// misfit is what an API server would not take of an object.
type misfit struct{ field, text string }

// kinds are the kinds that custom resource definitions bring, by group.
type kinds map[string][]*apiextensionsv1.CustomResourceDefinition

// learn reads the definitions out of a provider's manifest.
func (k kinds) learn(manifest []byte) error {
	docs, err := kube.Documents(manifest)
	if err != nil {
		return err
	}
	for _, doc := range docs {
		if !strings.Contains(string(doc), "\nkind: CustomResourceDefinition") && !strings.HasPrefix(string(doc), "kind: CustomResourceDefinition") {
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

// check tells what an API server would not take of an object, and whether its group is known at all.
func (k kinds) check(o *unstructured.Unstructured) (wrong []misfit, known bool) {
	gvk := o.GroupVersionKind()
	crds, known := k[gvk.Group]
	if !known {
		return nil, false
	}
	i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Spec.Names.Kind == gvk.Kind })
	if i < 0 {
		return []misfit{{"kind", "there is no kind " + gvk.Kind + " in " + gvk.Group}}, true
	}
	versions := crds[i].Spec.Versions
	j := slices.IndexFunc(versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version && v.Served })
	if j < 0 {
		return []misfit{{"apiVersion", gvk.Kind + " has no version " + gvk.Version}}, true
	}
	wrong, err := misfits(o, versions[j].Schema)
	if err != nil {
		return []misfit{{"", "its schema cannot be read: " + err.Error()}}, true
	}
	return wrong, true
}

// misfits does what an API server does with an object before it asks webhooks: unknown fields, defaults, the schema.
func misfits(o *unstructured.Unstructured, of *apiextensionsv1.CustomResourceValidation) ([]misfit, error) {
	if of == nil || of.OpenAPIV3Schema == nil {
		return nil, nil
	}
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of.OpenAPIV3Schema, props, nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	object := o.DeepCopy().Object
	var wrong []misfit
	for _, field := range pruning.PruneWithOptions(object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		wrong = append(wrong, misfit{field, "unknown field " + field})
	}
	defaulting.Default(object, structural)
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	for _, e := range validation.ValidateCustomResource(nil, object, validator) {
		wrong = append(wrong, misfit{e.Field, e.Error()})
	}
	return wrong, nil
}
