package render

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// metadataRouteVariable is "false" where the servers of a cluster were made without the route to Hetzner's metadata
// that the built-in manifests have: with it, they would all be replaced.
const metadataRouteVariable = "METADATA_ROUTE"

// MetadataAddress is where servers find Hetzner's metadata.
const MetadataAddress = "169.254.169.254"

// patchesPath is where a TalosControlPlane and a TalosConfigTemplate have their strategic patches.
func patchesPath(o *unstructured.Unstructured) []string {
	if o.GetKind() == capi.TalosControlPlaneKind.Kind {
		return []string{"spec", "controlPlaneConfig", "controlplane", "strategicPatches"}
	}
	return []string{"spec", "template", "spec", "strategicPatches"}
}

// addPatches adds strategic patches to a TalosControlPlane or a TalosConfigTemplate.
func addPatches(o *unstructured.Unstructured, added ...string) error {
	patches, _, err := unstructured.NestedStringSlice(o.Object, patchesPath(o)...)
	if err != nil {
		return err
	}
	return unstructured.SetNestedStringSlice(o.Object, append(patches, added...), patchesPath(o)...)
}

// MetadataRouteOf is "false" where the patches of a live TalosControlPlane or TalosConfigTemplate, which may be nil,
// do not have the route to the metadata.
func MetadataRouteOf(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	patches, _, _ := unstructured.NestedStringSlice(o.Object, patchesPath(o)...)
	if slices.ContainsFunc(patches, func(p string) bool { return strings.Contains(p, MetadataAddress) }) {
		return ""
	}
	return "false"
}

// keepMetadataRoute takes the patch with the route out of the object of a built-in manifest, for servers that were made
// without it. An operator's own manifest is applied as it is.
func keepMetadataRoute(s Source, o *unstructured.Unstructured, v Variables) error {
	if s.Own || v[metadataRouteVariable] != "false" {
		return nil
	}
	if kind := o.GetKind(); kind != capi.TalosControlPlaneKind.Kind && kind != capi.TalosConfigTemplateKind.Kind {
		return nil
	}
	patches, found, err := unstructured.NestedStringSlice(o.Object, patchesPath(o)...)
	if err != nil || !found {
		return err
	}
	patches = slices.DeleteFunc(patches, func(p string) bool { return strings.Contains(p, MetadataAddress) })
	return unstructured.SetNestedStringSlice(o.Object, patches, patchesPath(o)...)
}
