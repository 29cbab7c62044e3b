package render

import (
	"maps"
)

func ManifestVariables(sources Sources, image, zone, loadBalancerIP string) Variables {
	v := maps.Clone(sources.Vars)
	v[ImageNameVariable], v[NetworkZoneVariable], v[LoadBalancerIPVariable] = image, zone, loadBalancerIP
	return v
}
