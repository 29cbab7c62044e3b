package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Variables of the manifests that are not configuration.
const (
	NetworkZoneVariable    = "NETWORK_ZONE"
	ImageNameVariable      = "IMAGE_NAME" // the configuration's may be empty, the manifests' never is
	LoadBalancerIPVariable = "LOAD_BALANCER_IP"

	serverTypeVariable      = "SERVER_TYPE" // the configuration's may be a list, the manifests' is the chosen one
	locationVariable        = "LOCATION"    // as above, of the load balancer
	serverLocationsVariable = "CONTROL_PLANE_LOCATIONS"

	endpointHostVariable     = "CONTROL_PLANE_HOST"
	loadBalancerNameVariable = "LOAD_BALANCER_NAME"

	templateVariable     = "CONTROL_PLANE_TEMPLATE" // of the live control plane
	templateHashVariable = "CONTROL_PLANE_TEMPLATE_HASH"
)

// TemplateHashLength is short because it becomes part of every server's name.
const TemplateHashLength = 5

// Rendered are the objects to apply.
type Rendered struct {
	// now can be applied at once, in this order: without the load balancer's address not everything.
	Now []*unstructured.Unstructured
	// template is the control plane's HCloudMachineTemplate, under the name that its content gives it.
	Template string
}

// Manifests makes the cluster's objects out of its manifests. Without the load balancer's address (an empty
// LOAD_BALANCER_IP) every document that asks for it with ${LOAD_BALANCER_IP} is set aside, and so is the Cluster's
// reference to it: see manifests/cluster.yaml.
func Manifests(cfg config.Config, sources Sources, v Variables) (*Rendered, error) {
	var all, aside []*unstructured.Unstructured
	from := filesOfObjects{}
	for _, s := range sources.Objects() {
		docs, err := s.Documents()
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			o, err := s.Object(doc, v)
			if err != nil {
				return nil, err
			}
			if err := from.add(cfg.Namespace, s, o); err != nil {
				return nil, err
			}
			if err := keepMetadataRoute(s, o, v); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
			all = append(all, o)
			if v[LoadBalancerIPVariable] == "" && bytes.Contains(doc, []byte("${"+LoadBalancerIPVariable+"}")) {
				aside = append(aside, o)
			}
		}
	}
	if err := addOIDC(cfg, sources, all, v); err != nil {
		return nil, err
	}
	r := &Rendered{}
	for _, o := range all {
		if o.GroupVersionKind() == capi.HetznerClusterKind && o.GetName() == cfg.ClusterName {
			if err := errors.Join(setEndpoint(o, v), setLocations(o, v), setPlacementGroups(o, cfg, v)); err != nil {
				return nil, fmt.Errorf("%s: %w", sources.Cluster.Name, err)
			}
		}
		if o.GroupVersionKind() == capi.MachineTemplateKind {
			old := o.GetName()
			if err := nameByContent(o, all, v); err != nil {
				return nil, err
			}
			if old == cfg.ControlPlaneName() {
				r.Template = o.GetName()
			}
		}
	}
	r.leaveOut(all, aside)
	return r, nil
}

// leaveOut takes all but some objects, and but the reference of the Cluster to one of those.
func (r *Rendered) leaveOut(all, aside []*unstructured.Unstructured) {
	for _, o := range all {
		if slices.Contains(aside, o) {
			continue
		}
		if o.GroupVersionKind() == capi.ClusterKind && refersTo(o, aside) {
			o = o.DeepCopy()
			unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneRef")
		}
		r.Now = append(r.Now, o)
	}
}

func refersTo(cluster *unstructured.Unstructured, objects []*unstructured.Unstructured) bool {
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return capi.Text(cluster, "spec", "controlPlaneRef", "kind") == o.GetKind() &&
			capi.Text(cluster, "spec", "controlPlaneRef", "name") == o.GetName()
	})
}

// addOIDC adds the patch for an OpenID Connect issuer to the control plane, when one is configured.
func addOIDC(cfg config.Config, sources Sources, objects []*unstructured.Unstructured, v Variables) error {
	if cfg.OIDCIssuerURL == "" {
		return nil
	}
	patch, err := sources.OidcPatch.Fill(sources.OidcPatch.Data, v)
	if err != nil {
		return err
	}
	var content map[string]any
	if err := yaml.UnmarshalStrict(patch, &content); err != nil {
		return fmt.Errorf("%s: %w", sources.OidcPatch.Name, err)
	}
	// Written anew: a changed comment in the file must not replace every server.
	if patch, err = yaml.Marshal(content); err != nil {
		return fmt.Errorf("%s: %w", sources.OidcPatch.Name, err)
	}
	for _, o := range objects {
		if o.GroupVersionKind() != capi.TalosControlPlaneKind || o.GetName() != cfg.ControlPlaneName() {
			continue
		}
		if err := addPatches(o, string(patch)); err != nil {
			return fmt.Errorf("%s: %w", sources.Cluster.Name, err)
		}
		return nil
	}
	return fmt.Errorf("%s has no TalosControlPlane %s to add %s to", sources.Cluster.Name, cfg.ControlPlaneName(),
		sources.OidcPatch.Name)
}

// NameByContent is a template's name with a hash of its spec after it.
func NameByContent(name string, template *unstructured.Unstructured) (string, error) {
	hash, err := contentHash(template)
	return name + "-" + hash, err
}

func contentHash(template *unstructured.Unstructured) (string, error) {
	spec, err := json.Marshal(template.Object["spec"]) // keys in order
	if err != nil {
		return "", fmt.Errorf("read %s: %w", kube.Describe(template), err)
	}
	sum := sha256.Sum256(spec)
	return hex.EncodeToString(sum[:])[:TemplateHashLength], nil
}

// nameByContent gives a template, whose spec is immutable, a name that changes with its spec, and every reference
// to it with it. One that the live control plane has with this content keeps its name.
func nameByContent(template *unstructured.Unstructured, all []*unstructured.Unstructured, v Variables) error {
	old := template.GetName()
	hash, err := contentHash(template)
	if err != nil {
		return err
	}
	name := old + "-" + hash
	if hash == v[templateHashVariable] && refersToTemplate(all, old) {
		name = v[templateVariable]
	}
	template.SetName(name)
	for _, o := range all {
		rename(o.Object, template.GetKind(), old, name)
	}
	return nil
}

// refersToTemplate tells whether a control plane's servers are made from a template.
func refersToTemplate(all []*unstructured.Unstructured, template string) bool {
	return slices.ContainsFunc(all, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind() == capi.TalosControlPlaneKind &&
			capi.Text(o, "spec", "infrastructureTemplate", "name") == template
	})
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
