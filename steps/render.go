package steps

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/kube"
)

// Variables of the manifests that are not configuration.
const (
	networkZoneVariable    = "NETWORK_ZONE"
	imageNameVariable      = "IMAGE_NAME" // the configuration's may be empty, the manifests' never is
	loadBalancerIPVariable = "LOAD_BALANCER_IP"
)

// templateHashLength is short because it becomes part of every server's name.
const templateHashLength = 5

// rendered are the objects to apply.
type rendered struct {
	// now can be applied at once, in this order: without the load balancer's address not everything.
	now []*unstructured.Unstructured
	// template is the control plane's HCloudMachineTemplate, under the name that its content gives it.
	template string
}

// render makes the cluster's objects out of its manifests. Without the load balancer's address (an empty
// LOAD_BALANCER_IP) every document that asks for it with ${LOAD_BALANCER_IP} is set aside, and so is the Cluster's
// reference to it: see manifests/cluster.yaml.
func render(cfg Config, sources sources, v variables) (*rendered, error) {
	var all, aside []*unstructured.Unstructured
	from := filesOfObjects{}
	for _, s := range sources.objects() {
		docs, err := kube.Documents(s.data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		for _, doc := range docs {
			filled, err := s.fill(doc, v)
			if err != nil {
				return nil, err
			}
			o, err := kube.Parse(filled)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if err := from.add(s, o); err != nil {
				return nil, err
			}
			all = append(all, o)
			if v[loadBalancerIPVariable] == "" && bytes.Contains(doc, []byte("${"+loadBalancerIPVariable+"}")) {
				aside = append(aside, o)
			}
		}
	}
	if err := addOIDC(cfg, sources, all, v); err != nil {
		return nil, err
	}
	r := &rendered{}
	for _, o := range all {
		if o.GroupVersionKind() == machineTemplateKind {
			old := o.GetName()
			if err := nameByContent(o, all); err != nil {
				return nil, err
			}
			if old == cfg.ControlPlaneName() {
				r.template = o.GetName()
			}
		}
	}
	r.leaveOut(all, aside)
	return r, nil
}

// leaveOut takes all but some objects, and but the reference of the Cluster to one of those.
func (r *rendered) leaveOut(all, aside []*unstructured.Unstructured) {
	for _, o := range all {
		if slices.Contains(aside, o) {
			continue
		}
		if o.GroupVersionKind() == clusterKind && refersTo(o, aside) {
			o = o.DeepCopy()
			unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneRef")
		}
		r.now = append(r.now, o)
	}
}

func refersTo(cluster *unstructured.Unstructured, objects []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return text(cluster, "spec", "controlPlaneRef", "kind") == o.GetKind() && text(cluster, "spec", "controlPlaneRef", "name") == o.GetName()
	})
}

// addOIDC adds the patch for an OpenID Connect issuer to the control plane, when one is configured.
func addOIDC(cfg Config, sources sources, objects []*unstructured.Unstructured, v variables) error {
	if cfg.OIDCIssuerURL == "" {
		return nil
	}
	patch, err := sources.oidcPatch.fill(sources.oidcPatch.data, v)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.UnmarshalStrict(patch, &content); err != nil {
		return fmt.Errorf("%s: %w", sources.oidcPatch.name, err)
	}
	// Written anew: a changed comment in the file must not replace every server.
	if patch, err = yaml.Marshal(content); err != nil {
		return fmt.Errorf("%s: %w", sources.oidcPatch.name, err)
	}
	path := []string{"spec", "controlPlaneConfig", "controlplane", "strategicPatches"}
	for _, o := range objects {
		if o.GroupVersionKind() != talosControlPlaneKind || o.GetName() != cfg.ControlPlaneName() {
			continue
		}
		patches, _, err := unstructured.NestedStringSlice(o.Object, path...)
		if err != nil {
			return fmt.Errorf("%s: %w", sources.cluster.name, err)
		}
		return unstructured.SetNestedStringSlice(o.Object, append(patches, string(patch)), path...)
	}
	return fmt.Errorf("%s has no TalosControlPlane %s to add %s to", sources.cluster.name, cfg.ControlPlaneName(), sources.oidcPatch.name)
}

// nameByContent gives a template, whose spec nobody may change, a name that changes with its spec, and every reference
// to it with it.
func nameByContent(template *unstructured.Unstructured, all []*unstructured.Unstructured) error {
	spec, err := json.Marshal(template.Object["spec"]) // keys in order
	if err != nil {
		return fmt.Errorf("read %s: %w", kube.Describe(template), err)
	}
	sum := sha256.Sum256(spec)
	old := template.GetName()
	name := old + "-" + hex.EncodeToString(sum[:])[:templateHashLength]
	template.SetName(name)
	for _, o := range all {
		rename(o.Object, template.GetKind(), old, name)
	}
	return nil
}

// rename follows references {kind, name} through everything below v.
func rename(v any, kind, old, name string) {
	switch v := v.(type) {
	case map[string]any:
		if v["kind"] == kind && v["name"] == old {
			v["name"] = name
		}
		for _, child := range v {
			rename(child, kind, old, name)
		}
	case []any:
		for _, child := range v {
			rename(child, kind, old, name)
		}
	}
}
