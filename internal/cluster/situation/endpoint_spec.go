package situation

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// EndpointSpec is the control plane endpoint that the manifests ask for; nil where they name an address, a host name or
// a load balancer of their own, or want no load balancer.
func EndpointSpec(cfg config.Config, sources render.Sources, zone string,
	placement render.Placement) (*hetzner.EndpointSpec, error) {
	r, err := render.Manifests(cfg, sources,
		render.ManifestVariables(sources, "image", zone, render.Endpoint{}).Placed(placement))
	if err != nil {
		return nil, err
	}
	for _, o := range r.Now {
		if o.GroupVersionKind() == capi.HetznerClusterKind && o.GetName() == cfg.ClusterName {
			return endpointSpec(o, cfg.ClusterName)
		}
	}
	return nil, nil
}

// endpointSpec is the load balancer that a HetznerCluster asks for.
func endpointSpec(o *unstructured.Unstructured, cluster string) (*hetzner.EndpointSpec, error) {
	if capi.Text(o, "spec", "controlPlaneEndpoint", "host") != "" ||
		!capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled") ||
		capi.Text(o, "spec", "controlPlaneLoadBalancer", "name") != "" {
		return nil, nil
	}
	spec := &hetzner.EndpointSpec{Cluster: cluster,
		Location:         capi.Text(o, "spec", "controlPlaneLoadBalancer", "region"),
		LoadBalancerType: capi.Text(o, "spec", "controlPlaneLoadBalancer", "type"),
		Algorithm:        capi.Text(o, "spec", "controlPlaneLoadBalancer", "algorithm"),
		Services: []hetzner.EndpointService{{
			ListenPort:      int(capi.Number(o, "spec", "controlPlaneEndpoint", "port")),
			DestinationPort: int(capi.Number(o, "spec", "controlPlaneLoadBalancer", "port"))}},
	}
	extra, _, err := unstructured.NestedSlice(o.Object, "spec", "controlPlaneLoadBalancer", "extraServices")
	if err != nil {
		return nil, fmt.Errorf("HetznerCluster %s: %w", o.GetName(), err)
	}
	for _, one := range extra {
		fields, _ := one.(map[string]any)
		service := &unstructured.Unstructured{Object: fields}
		spec.Services = append(spec.Services, hetzner.EndpointService{
			ListenPort:      int(capi.Number(service, "listenPort")),
			DestinationPort: int(capi.Number(service, "destinationPort"))})
	}
	return spec, nil
}

// ClusterExists tells whether the cluster has an endpoint of its own already: it has a server, a load balancer of CAPH,
// or a HetznerCluster in the management cluster.
func ClusterExists(ctx context.Context, cfg config.Config, tools platform.Tools) (bool, error) {
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil || len(servers) > 0 {
		return len(servers) > 0, err
	}
	balancers, err := hetzner.LoadBalancers(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil || len(balancers) > 0 {
		return len(balancers) > 0, err
	}
	if _, err := tools.Files.Read(platform.ManagementKubeconfig); err != nil {
		return false, nil // there is no management cluster that could know it
	}
	mgmt, err := connect.Cluster(tools, platform.ManagementKubeconfig)
	if err != nil {
		return false, err
	}
	switch _, err := capi.Get(ctx, mgmt, cfg.Namespace, capi.HetznerClusterKind, cfg.ClusterName); {
	case kube.Absent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("find out whether the management cluster has a control plane endpoint of cluster %s: %w",
			cfg.ClusterName, err)
	}
	return true, nil
}
