package checks

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// apiServerPort is where kube-apiserver listens on the control plane's servers.
const apiServerPort = 6443

// unfitObject is what an object says that its controller waits for without an end.
type unfitObject struct {
	path          []any
	problem, hint string
}

// unfitObjects looks for what does not work in one of the objects, or between them.
func unfitObjects(cfg config.Config, o *unstructured.Unstructured, all []*unstructured.Unstructured) []unfitObject {
	switch o.GroupVersionKind() {
	case capi.ClusterKind:
		return slices.Concat(unfitCluster(o), unfitReferences(o, all, "infrastructureRef", "controlPlaneRef"))
	case capi.HetznerClusterKind:
		return slices.Concat(unfitLoadBalancer(cfg, o), unfitTokenReference(o), unfitZone(o))
	case capi.TalosControlPlaneKind:
		return unfitReferences(o, all, "infrastructureTemplate")
	case capi.MachineTemplateKind:
		return unfitPlacementGroup(o, all)
	}
	return nil
}

func unfitCluster(o *unstructured.Unstructured) (found []unfitObject) {
	if capi.Truth(o, "spec", "paused") {
		found = append(found, unfitObject{[]any{"spec", "paused"}, "spec.paused is true: its controllers would do nothing",
			"remove paused"})
	}
	for field, variable := range map[string]string{"pods": "POD_CIDR", "services": "SERVICE_CIDR"} {
		path := []string{"spec", "clusterNetwork", field, "cidrBlocks"}
		if blocks, _, _ := unstructured.NestedStringSlice(o.Object, path...); len(blocks) > 1 {
			found = append(found, unfitObject{[]any{"spec", "clusterNetwork", field, "cidrBlocks", 1},
				fmt.Sprintf("spec.clusterNetwork.%s.cidrBlocks has %d ranges: there is no dual stack here", field, len(blocks)),
				fmt.Sprintf("write one IPv4 range, as ${%s}", variable)})
		}
	}
	slices.SortFunc(found, func(a, b unfitObject) int { return strings.Compare(a.problem, b.problem) })
	return found
}

// unfitReferences looks for objects that are named and are not in the files.
func unfitReferences(o *unstructured.Unstructured, all []*unstructured.Unstructured,
	fields ...string) (found []unfitObject) {
	for _, field := range fields {
		kind, name := capi.Text(o, "spec", field, "kind"), capi.Text(o, "spec", field, "name")
		var there []string
		for _, other := range all {
			if other.GetKind() == kind {
				there = append(there, other.GetName())
			}
		}
		if kind == "" || len(there) == 0 || slices.Contains(there, name) {
			continue // without the kind another check says so
		}
		found = append(found, unfitObject{[]any{"spec", field, "name"},
			fmt.Sprintf("spec.%s names %s %s, which is not in the files", field, kind, name),
			"write the name of one that is: " + strings.Join(there, ", ")})
	}
	return found
}

// unfitLoadBalancer looks for a Kubernetes API that nothing leads to.
func unfitLoadBalancer(cfg config.Config, o *unstructured.Unstructured) (found []unfitObject) {
	balancer := []any{"spec", "controlPlaneLoadBalancer"}
	host := capi.Text(o, "spec", "controlPlaneEndpoint", "host")
	own := host != "" && host != render.MadeUp(cfg).IP
	if !capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled") && !own {
		return append(found, unfitObject{append(balancer, "enabled"), "controlPlaneLoadBalancer.enabled is not true, and " +
			"controlPlaneEndpoint has no host of its own: nothing would lead to the Kubernetes API",
			"write enabled: true, or the host of a load balancer of your own into controlPlaneEndpoint"})
	}
	if port := capi.Number(o, "spec", "controlPlaneLoadBalancer", "port"); port != 0 && port != apiServerPort {
		found = append(found, unfitObject{append(balancer, "port"), fmt.Sprintf("controlPlaneLoadBalancer.port is %d, and "+
			"kube-apiserver listens on %d: it is the port of the servers that the load balancer leads to", port, apiServerPort),
			fmt.Sprintf("write port: %d", apiServerPort)})
	}
	return found
}

// unfitZone looks for a region outside of the network's zone: Hetzner attaches servers and load balancers to networks
// of their own zone only.
func unfitZone(o *unstructured.Unstructured) []unfitObject {
	path := []any{"spec", "hcloudNetwork", "networkZone"}
	zone := capi.Text(o, "spec", "hcloudNetwork", "networkZone")
	regions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "controlPlaneRegions")
	for _, region := range append(regions, capi.Text(o, "spec", "controlPlaneLoadBalancer", "region")) {
		if is := config.NetworkZone(region); zone != "" && is != "" && is != zone {
			return []unfitObject{{path, fmt.Sprintf("hcloudNetwork.networkZone is %s, and region %s is in %s: nothing there "+
				"can be attached to the network", zone, region, is), "write networkZone: ${NETWORK_ZONE}, or regions of " + zone}}
		}
	}
	return nil
}

// unfitTokenReference looks for a Secret with the token that no step creates.
func unfitTokenReference(o *unstructured.Unstructured) []unfitObject {
	name := capi.Text(o, "spec", "hetznerSecretRef", "name")
	key := capi.Text(o, "spec", "hetznerSecretRef", "key", "hcloudToken")
	if name == config.TokenSecretName && key == config.TokenSecretKey {
		return nil
	}
	return []unfitObject{{[]any{"spec", "hetznerSecretRef"}, fmt.Sprintf("hetznerSecretRef is key %q of Secret %q, "+
		"which no step creates: CAPH would have no token", key, name), fmt.Sprintf("write name: %s, and hcloudToken: %s below key",
		config.TokenSecretName, config.TokenSecretKey)}}
}

// unfitPlacementGroup looks for a placement group that CAPH does not create. Those of worker pools are added to the
// HetznerCluster.
func unfitPlacementGroup(o *unstructured.Unstructured, all []*unstructured.Unstructured) []unfitObject {
	name := capi.Text(o, "spec", "template", "spec", "placementGroupName")
	if name == "" || ofPool(o) {
		return nil
	}
	var there []string
	for _, other := range all {
		listed, _, _ := unstructured.NestedSlice(other.Object, "spec", "hcloudPlacementGroups")
		for _, one := range listed {
			group, _ := one.(map[string]any)
			there = append(there, fmt.Sprint(group["name"]))
		}
	}
	if slices.Contains(there, name) {
		return nil
	}
	return []unfitObject{{[]any{"spec", "template", "spec", "placementGroupName"}, fmt.Sprintf(
		"placementGroupName is %s, and hcloudPlacementGroups of the HetznerCluster is [%s]: CAPH would create no server", name, strings.Join(there, ", ")),
		"add it there with type: spread, or write one of those"}}
}
