package render

import (
	"maps"
)

// ManifestVariables are the variables of the manifests, with what only a run knows: image, network zone and address.
func ManifestVariables(sources Sources, image, zone, loadBalancerIP string) Variables {
	v := maps.Clone(sources.Vars)
	v[ImageNameVariable], v[NetworkZoneVariable], v[LoadBalancerIPVariable] = image, zone, loadBalancerIP
	return v
}
