package render

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Placement is what the servers of a control plane are, where, and whether their nodes take Pods of everyone, and which
// placement groups worker pools have. The zero value is the preferred of the configuration.
type Placement struct {
	ServerType string
	Location   string   // of the load balancer
	Locations  []string // of the servers
	// Schedulable is "true" or "false"; empty: true where no worker pool is configured.
	Schedulable string
	// PoolGroups are the placement groups of the worker pools that the cluster has, whether or not they are configured.
	PoolGroups []string
	// MetadataRoute is "false" where the servers were made without the route to Hetzner's metadata.
	MetadataRoute string
	// TalosVersion is that of the TalosControlPlane, and Image the image that its template names: Placed tells of a
	// control plane whose Talos was upgraded in place.
	TalosVersion, Image string
	// Template is the name of the HCloudMachineTemplate that the servers are made from, and TemplateHash the hash of its
	// content: a template of the same content keeps its name, whoever gave it.
	Template, TemplateHash string
}

// PlacementOf is the placement that a HetznerCluster, a TalosControlPlane and an HCloudMachineTemplate have; each may
// be nil.
func PlacementOf(infrastructure, tcp, template *unstructured.Unstructured) Placement {
	p := Placement{Schedulable: SchedulableOf(tcp), MetadataRoute: MetadataRouteOf(tcp)}
	if infrastructure != nil {
		p.Location = capi.Text(infrastructure, "spec", "controlPlaneLoadBalancer", "region")
		p.Locations, _, _ = unstructured.NestedStringSlice(infrastructure.Object, "spec", "controlPlaneRegions")
	}
	if template != nil {
		p.ServerType = capi.Text(template, "spec", "template", "spec", "type")
		p.Image = capi.Text(template, "spec", "template", "spec", "imageName")
		if hash, err := contentHash(template); err == nil {
			p.Template, p.TemplateHash = template.GetName(), hash
		}
	}
	if tcp != nil {
		p.TalosVersion = capi.Text(tcp, "spec", "controlPlaneConfig", "controlplane", "talosVersion")
	}
	return p
}

// Seen is what of the cluster known problems depend on, as config names it.
func (p Placement) Seen() []string {
	if p.MetadataRoute == "" {
		return nil
	}
	return []string{config.SeenNoMetadataRoute}
}

// talosVersionVariable is Talos's version. The manifests use it for the form of the machine configuration, which is the
// same within a minor version.
const talosVersionVariable = "TALOS_VERSION"

// Placed are the variables with a placement; what it leaves empty stays as it is.
func (v Variables) Placed(p Placement) Variables {
	v = maps.Clone(v)
	for name, value := range map[string]string{serverTypeVariable: p.ServerType, locationVariable: p.Location,
		serverLocationsVariable: strings.Join(p.Locations, ","), schedulableVariable: p.Schedulable,
		metadataRouteVariable: p.MetadataRoute, poolGroupsVariable: strings.Join(p.PoolGroups, ","),
		templateVariable: p.Template, templateHashVariable: p.TemplateHash} {
		if value != "" {
			v[name] = value
		}
	}
	// Servers that were upgraded in place keep their machine configuration. Another talosVersion would replace them all.
	if version := v[talosVersionVariable]; p.Image == v[ImageNameVariable] && config.TalosOfImage(p.Image) == version &&
		config.SameMinor(version, p.TalosVersion) {
		v[talosVersionVariable] = p.TalosVersion
	}
	return v
}

// setLocations writes the locations of the servers into a HetznerCluster, where its manifest has LOCATION alone. Other
// locations in the manifest stay.
func setLocations(o *unstructured.Unstructured, v Variables) error {
	regions, _, err := unstructured.NestedStringSlice(o.Object, "spec", "controlPlaneRegions")
	if err != nil || !slices.Equal(regions, []string{v[locationVariable]}) || v[serverLocationsVariable] == "" {
		return err
	}
	return unstructured.SetNestedStringSlice(o.Object, strings.Split(v[serverLocationsVariable], ","), "spec",
		"controlPlaneRegions")
}
