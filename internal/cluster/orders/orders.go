// Package orders lists the Hetzner resources that the objects of a cluster ask for.
package orders

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Of are the resources that the objects of a cluster ask for.
func Of(objects []*unstructured.Unstructured, location string) []hetzner.Order {
	var orders []hetzner.Order
	for _, o := range objects {
		switch {
		case o.GroupVersionKind() == capi.HetznerClusterKind:
			orders = append(orders, clusterOrders(o)...)
			if regions, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "controlPlaneRegions"); len(regions) > 0 {
				location = regions[0]
			}
		case Template(o) != "":
			at := location
			if own := capi.Text(o, "spec", "template", "spec", "failureDomain"); own != "" {
				at = own
			}
			servers := Servers(objects, Template(o), Replicas(o), at)
			if len(servers) > 0 {
				servers[0].Name = ServerNames(o)
			}
			orders = append(orders, servers...)
		}
	}
	return orders
}

// clusterOrders are the resources of a HetznerCluster besides its servers.
func clusterOrders(o *unstructured.Unstructured) []hetzner.Order {
	var orders []hetzner.Order
	if capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled") {
		balancer := hetzner.Order{
			Kind: hetzner.KindLoadBalancer, Count: 1, Name: o.GetName() + "-kube-apiserver-…",
			Type:     capi.Text(o, "spec", "controlPlaneLoadBalancer", "type"),
			Location: capi.Text(o, "spec", "controlPlaneLoadBalancer", "region"),
		}
		if name := capi.Text(o, "spec", "controlPlaneLoadBalancer", "name"); name != "" {
			balancer.Name = name
		}
		orders = append(orders, balancer)
		if balancer.Name == hetzner.EndpointName(o.GetName()) {
			orders = append(orders, hetzner.Order{Kind: hetzner.KindPrimaryIP, Count: 1, Name: balancer.Name, Type: "ipv4",
				Location: balancer.Location, Endpoint: true})
		}
	}
	if capi.Truth(o, "spec", "hcloudNetwork", "enabled") {
		orders = append(orders, hetzner.Order{Kind: hetzner.KindNetwork, Count: 1, Name: o.GetName()})
	}
	if n := len(capi.PlacementGroups(o)); n > 0 {
		orders = append(orders, hetzner.Order{Kind: hetzner.KindPlacementGroup, Count: n, Name: o.GetName() + "-…"})
	}
	return orders
}

// OfEndpoint are those of the control plane endpoint: its load balancer and its address.
func OfEndpoint(orders []hetzner.Order) []hetzner.Order {
	return slices.DeleteFunc(orders, func(o hetzner.Order) bool {
		return !o.Endpoint && o.Kind != hetzner.KindLoadBalancer
	})
}

// Servers are servers of a template, each with its address.
func Servers(objects []*unstructured.Unstructured, template string, replicas int, location string) []hetzner.Order {
	for _, o := range objects {
		if o.GroupVersionKind() != capi.MachineTemplateKind || o.GetName() != template || replicas < 1 {
			continue
		}
		servers := hetzner.Order{
			Kind: hetzner.KindServer, Count: replicas, Name: template + "-…",
			Type: capi.Text(o, "spec", "template", "spec", "type"), Location: location,
		}
		if on, found, _ := unstructured.NestedBool(o.Object, "spec", "template", "spec", "publicNetwork",
			"enableIPv4"); found && !on {
			return []hetzner.Order{servers}
		}
		return []hetzner.Order{servers,
			{Kind: hetzner.KindPrimaryIP, Count: replicas, Name: "of the servers", Type: "ipv4", Location: location}}
	}
	return nil
}

// Replicas are the servers that an object asks for; where the cluster autoscaler chooses their number, the fewest.
func Replicas(o *unstructured.Unstructured) int {
	if n, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); found {
		return int(n)
	}
	n, _ := strconv.Atoi(o.GetAnnotations()[capi.AutoscalerMin])
	return n
}

// Most is the largest number of servers that an object may have: what it asks for, or what the cluster autoscaler may
// choose.
func Most(o *unstructured.Unstructured) int {
	n, _ := strconv.Atoi(o.GetAnnotations()[capi.AutoscalerMax])
	return max(n, Replicas(o))
}

// ServerNames is how the servers of an object are called: Cluster API names those of a control plane after their
// template, and those of a MachineDeployment after their Machine.
func ServerNames(o *unstructured.Unstructured) string {
	if o.GroupVersionKind().GroupKind() == capi.TalosControlPlaneKind.GroupKind() {
		return Template(o) + "-…"
	}
	return o.GetName() + "-…"
}

// Template names the HCloudMachineTemplate that an object makes servers from; empty where it makes none.
func Template(o *unstructured.Unstructured) string {
	switch o.GroupVersionKind().GroupKind() {
	case capi.TalosControlPlaneKind.GroupKind():
		return capi.Text(o, "spec", "infrastructureTemplate", "name")
	case capi.MachineDeploymentKind.GroupKind():
		return capi.Text(o, "spec", "template", "spec", "infrastructureRef", "name")
	}
	return ""
}
