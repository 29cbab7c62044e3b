package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// probeName is the name of the objects that are never made.
const probeName = "slipway-probe"

var crdListGVK = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
	Kind: "CustomResourceDefinitionList"}

// hook is one admission webhook.
type hook struct {
	name    string
	trusted bool // the API server was given a certificate authority for it
	rules   []admissionv1.RuleWithOperations
}

// UntrustedWebhooks says which webhooks of the objects with a label have no certificate authority yet, so that the API
// server cannot call them; empty when all have. It only reads.
func (c *Cluster) UntrustedWebhooks(ctx context.Context, label string) (string, error) {
	hooks, err := c.hooks(ctx, label)
	if err != nil {
		return "", err
	}
	var missing []string
	for _, h := range hooks {
		if !h.trusted {
			missing = append(missing, h.name)
		}
	}
	crds := &unstructured.UnstructuredList{}
	crds.SetGroupVersionKind(crdListGVK)
	if err := c.List(ctx, crds, client.HasLabels{label}); err != nil {
		return "", fmt.Errorf("list custom resource definitions: %w", err)
	}
	for _, crd := range crds.Items {
		hook, found, _ := unstructured.NestedMap(crd.Object, "spec", "conversion", "webhook", "clientConfig")
		if bundle, _ := hook["caBundle"].(string); found && bundle == "" {
			missing = append(missing, "the conversion of "+crd.GetName())
		}
	}
	return untrusted(missing), nil
}

// untrusted is one sentence, however many webhooks there are: Cluster API and its providers have more than forty.
func untrusted(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "webhook " + names[0] + " has no certificate authority"
	case 2:
		return "webhooks " + names[0] + " and " + names[1] + " have no certificate authority"
	}
	return fmt.Sprintf("%d webhooks have no certificate authority (%s, …)", len(names), strings.Join(names[:2], ", "))
}

func (c *Cluster) hooks(ctx context.Context, label string) ([]hook, error) {
	mutating, validating := &admissionv1.MutatingWebhookConfigurationList{},
		&admissionv1.ValidatingWebhookConfigurationList{}
	if err := c.List(ctx, mutating, client.HasLabels{label}); err != nil {
		return nil, fmt.Errorf("list mutating webhooks: %w", err)
	}
	if err := c.List(ctx, validating, client.HasLabels{label}); err != nil {
		return nil, fmt.Errorf("list validating webhooks: %w", err)
	}
	var hooks []hook
	for _, m := range mutating.Items {
		for _, w := range m.Webhooks {
			hooks = append(hooks, hook{w.Name, len(w.ClientConfig.CABundle) > 0, w.Rules})
		}
	}
	for _, v := range validating.Items {
		for _, w := range v.Webhooks {
			hooks = append(hooks, hook{w.Name, len(w.ClientConfig.CABundle) > 0, w.Rules})
		}
	}
	return hooks, nil
}

// ProbeWebhooks makes the API server call every webhook with a label that is called when something is created, by
// creating it as a dry run, which stores nothing. It says which did not answer. A refusal is an answer.
func (c *Cluster) ProbeWebhooks(ctx context.Context, namespace, label string) (string, error) {
	hooks, err := c.hooks(ctx, label)
	if err != nil {
		return "", err
	}
	kinds := map[schema.GroupVersionKind]bool{}
	for _, h := range hooks {
		for _, r := range h.rules {
			for _, resource := range createdResources(r) {
				kind, err := c.RESTMapper().KindFor(resource)
				if meta.IsNoMatchError(err) {
					return fmt.Sprintf("webhook %s is for %s, which the API does not serve yet", h.name, resource.GroupResource()), nil
				}
				if err != nil {
					return "", err
				}
				kinds[kind] = true
			}
		}
	}
	var silent []string
	for kind := range kinds {
		if err := c.probe(ctx, kind, namespace); err != nil {
			silent = append(silent, err.Error())
		}
	}
	slices.Sort(silent)
	return strings.Join(silent, "; "), nil
}

// createdResources are the resources that a rule names in full and is called for when one is created.
func createdResources(r admissionv1.RuleWithOperations) []schema.GroupVersionResource {
	if !slices.Contains(r.Operations, admissionv1.Create) && !slices.Contains(r.Operations, admissionv1.OperationAll) {
		return nil
	}
	var found []schema.GroupVersionResource
	for _, resource := range r.Resources {
		if strings.ContainsAny(resource, "*/") {
			continue
		}
		for _, group := range r.APIGroups {
			for _, version := range r.APIVersions {
				if group != "*" && version != "*" {
					found = append(found, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return found
}

// probe gives an error when a webhook for the kind, or the API server, did not answer.
func (c *Cluster) probe(ctx context.Context, kind schema.GroupVersionKind, namespace string) error {
	mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	o, err := c.minimal(ctx, mapping)
	if err != nil {
		return err
	}
	o.SetName(probeName)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		o.SetNamespace(namespace)
	}
	err = c.Create(ctx, o, client.DryRunAll)
	if err == nil || answered(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", kind.Kind, err)
}
