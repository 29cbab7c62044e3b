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

// unfitObjects looks for what does not work in one of the objects, or between them: what the providers do not bear, or
// what a controller waits for without an end.
func unfitObjects(cfg config.Config, o *unstructured.Unstructured, all []*unstructured.Unstructured) []unfit {
	switch o.GroupVersionKind() {
	case capi.ClusterKind:
		return slices.Concat(unfitCluster(o), unfitReferences(o, all, "infrastructureRef", "controlPlaneRef"))
	case capi.HetznerClusterKind:
		return slices.Concat(unfitInfrastructure(cfg, o), unfitLoadBalancer(cfg, o), unfitTokenReference(o), unfitZone(o))
	case capi.TalosControlPlaneKind:
		return slices.Concat(unfitReplicas(o), unfitReferences(o, all, "infrastructureTemplate"))
	case capi.MachineTemplateKind:
		return unfitPlacementGroup(o, all)
	}
	return nil
}

func unfitCluster(o *unstructured.Unstructured) (found []unfit) {
	for _, of := range []struct{ field, variable string }{{"pods", "POD_CIDR"}, {"services", "SERVICE_CIDR"}} {
		blocks, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "clusterNetwork", of.field, "cidrBlocks")
		if path := "spec.clusterNetwork." + of.field + ".cidrBlocks"; len(blocks) > 1 {
			found = append(found, unfit{path: path + "[1]", hint: "write one IPv4 range, as ${" + of.variable + "}",
				problem: fmt.Sprintf("%s has %d ranges: there is no dual stack here", path, len(blocks))})
		}
	}
	if capi.Truth(o, "spec", "paused") {
		found = append(found, *unfitAt("spec.paused", "remove paused", "is true: its controllers would do nothing"))
	}
	return found
}

// unfitInfrastructure looks for what CAPH, or the cluster, does not work without.
func unfitInfrastructure(cfg config.Config, o *unstructured.Unstructured) (found []unfit) {
	if _, there, _ := unstructured.NestedMap(o.Object, "spec", "controlPlaneEndpoint"); !there {
		found = append(found, unfit{path: "spec", hint: "give it a host, which may be empty, and a port",
			problem: fmt.Sprintf("it has no controlPlaneEndpoint, which CAPH %s does not survive", cfg.CAPHVersion)})
	}
	if !capi.Truth(o, "spec", "hcloudNetwork", "enabled") {
		found = append(found, unfit{path: "spec.hcloudNetwork.enabled", hint: "write enabled: true, with cidrBlock: " +
			"${NETWORK_CIDR}, subnetCidrBlock: ${CONTROL_PLANE_CIDR} and networkZone: ${NETWORK_ZONE}",
			problem: "hcloudNetwork.enabled is not true: without a private network the Hetzner CCM does not start, etcd and " +
				"the kubelets find no address, and Slipway none of the servers"})
	}
	return found
}

func unfitReplicas(o *unstructured.Unstructured) []unfit {
	const path, hint = "spec.replicas", "write replicas: ${CONTROL_PLANE_REPLICAS}, or an odd number, as etcd needs it"
	switch n, is, err := unstructured.NestedInt64(o.Object, "spec", "replicas"); {
	case err != nil || !is:
		return []unfit{*unfitAt(path, hint, "is missing, or no number: quotes make it a text")}
	case n%2 == 0:
		return []unfit{{path: path, hint: hint, problem: fmt.Sprintf("it has %d replicas", n)}}
	}
	return nil
}

// unfitReferences looks for objects that are named and are not in the files.
func unfitReferences(o *unstructured.Unstructured, all []*unstructured.Unstructured,
	fields ...string) (found []unfit) {
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
		found = append(found, unfit{path: "spec." + field + ".name",
			problem: fmt.Sprintf("spec.%s names %s %s, which is not in the files", field, kind, name),
			hint:    "write the name of one that is: " + strings.Join(there, ", ")})
	}
	return found
}

// unfitLoadBalancer looks for a Kubernetes API that nothing leads to.
func unfitLoadBalancer(cfg config.Config, o *unstructured.Unstructured) []unfit {
	host := capi.Text(o, "spec", "controlPlaneEndpoint", "host")
	own := host != "" && host != render.MadeUp(cfg).IP
	if !capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled") && !own {
		return []unfit{{path: "spec.controlPlaneLoadBalancer.enabled", problem: "controlPlaneLoadBalancer.enabled is not " +
			"true, and controlPlaneEndpoint has no host of its own: nothing would lead to the Kubernetes API",
			hint: "write enabled: true, or the host of a load balancer of your own into controlPlaneEndpoint"}}
	}
	if port := capi.Number(o, "spec", "controlPlaneLoadBalancer", "port"); port != 0 && port != apiServerPort {
		return []unfit{{path: "spec.controlPlaneLoadBalancer.port", hint: fmt.Sprintf("write port: %d", apiServerPort),
			problem: fmt.Sprintf("controlPlaneLoadBalancer.port is %d, and kube-apiserver listens on %d: it is the port of the "+
				"servers that the load balancer leads to", port, apiServerPort)}}
	}
	return nil
}

// unfitZone looks for a region outside of the network's zone: Hetzner attaches servers and load balancers to networks
// of their own zone only.
func unfitZone(o *unstructured.Unstructured) []unfit {
	zone := capi.Text(o, "spec", "hcloudNetwork", "networkZone")
	regions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "controlPlaneRegions")
	for _, region := range append(regions, capi.Text(o, "spec", "controlPlaneLoadBalancer", "region")) {
		if is := config.NetworkZone(region); zone != "" && is != "" && is != zone {
			return []unfit{{path: "spec.hcloudNetwork.networkZone", problem: fmt.Sprintf("hcloudNetwork.networkZone is %s, and "+
				"region %s is in %s: nothing there can be attached to the network", zone, region, is),
				hint: "write networkZone: ${NETWORK_ZONE}, or regions of " + zone}}
		}
	}
	return nil
}

// unfitTokenReference looks for a Secret with the token that no step creates.
func unfitTokenReference(o *unstructured.Unstructured) []unfit {
	name := capi.Text(o, "spec", "hetznerSecretRef", "name")
	key := capi.Text(o, "spec", "hetznerSecretRef", "key", "hcloudToken")
	if name == config.TokenSecretName && key == config.TokenSecretKey {
		return nil
	}
	return []unfit{{path: "spec.hetznerSecretRef", problem: fmt.Sprintf("hetznerSecretRef is key %q of Secret %q, which no "+
		"step creates: CAPH would have no token", key, name), hint: fmt.Sprintf("write name: %s, and hcloudToken: %s below "+
		"key", config.TokenSecretName, config.TokenSecretKey)}}
}

// unfitPlacementGroup looks for a placement group that CAPH does not create. Those of worker pools are added to the
// HetznerCluster.
func unfitPlacementGroup(o *unstructured.Unstructured, all []*unstructured.Unstructured) []unfit {
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
	return []unfit{{path: "spec.template.spec.placementGroupName", problem: fmt.Sprintf("placementGroupName is %s, and "+
		"hcloudPlacementGroups of the HetznerCluster is %s: CAPH would create no server", name, listed(there)),
		hint: "add it there with type: spread, or write one of those"}}
}
