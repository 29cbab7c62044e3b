package render

import (
	"cmp"
	"maps"
	"net"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
)

// Endpoint is the control plane endpoint that manifests are rendered for. The zero value is one that CAPH is still to
// create.
type Endpoint struct {
	IP           string // of the load balancer; empty: not known yet
	HostName     string // by which the API is addressed in place of the IP; empty: by the IP
	LoadBalancer string // name of the load balancer that CAPH adopts; empty: CAPH creates one
}

// MadeUp is the endpoint that a configuration asks for, with a made-up address, for where that does not matter.
func MadeUp(cfg config.Config) Endpoint {
	e := Endpoint{IP: "192.0.2.1"} // of RFC 5737's documentation range
	if cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer {
		e.HostName, e.LoadBalancer = cfg.EndpointHostName(), hetzner.EndpointName(cfg.ClusterName)
	}
	return e
}

// EndpointOf is the endpoint that a HetznerCluster has.
func EndpointOf(infrastructure *unstructured.Unstructured) Endpoint {
	host := capi.Text(infrastructure, "spec", "controlPlaneEndpoint", "host")
	e := Endpoint{IP: host, LoadBalancer: capi.Text(infrastructure, "spec", "controlPlaneLoadBalancer", "name")}
	if host != "" && net.ParseIP(host) == nil {
		e.HostName = host
		e.IP = cmp.Or(capi.Text(infrastructure, "status", "controlPlaneLoadBalancer", "ipv4"), host)
	}
	return e
}

// ManifestVariables are the variables of the manifests, with what only a run knows: image, network zone and endpoint.
func ManifestVariables(sources Sources, image, zone string, endpoint Endpoint) Variables {
	v := maps.Clone(sources.Vars)
	v[ImageNameVariable], v[NetworkZoneVariable] = image, zone
	return v.With(endpoint)
}

// MadeUpVariables are the variables of the manifests with made-up values of what only a run knows.
func MadeUpVariables(cfg config.Config, sources Sources) Variables {
	return ManifestVariables(sources, "image", config.NetworkZone(cfg.PreferredLocation()), MadeUp(cfg))
}

// With are the variables with another endpoint.
func (v Variables) With(endpoint Endpoint) Variables {
	v = maps.Clone(v)
	v[LoadBalancerIPVariable] = endpoint.IP
	v[endpointHostVariable], v[loadBalancerNameVariable] = endpoint.HostName, endpoint.LoadBalancer
	return v
}

// setEndpoint writes into a HetznerCluster what its manifest need not say: the host name in the place of the address,
// and the load balancer that CAPH adopts. What the manifest says itself stays.
func setEndpoint(o *unstructured.Unstructured, v Variables) error {
	if !capi.Truth(o, "spec", "controlPlaneLoadBalancer", "enabled") {
		return nil
	}
	host := capi.Text(o, "spec", "controlPlaneEndpoint", "host")
	if name := v[endpointHostVariable]; name != "" && host == v[LoadBalancerIPVariable] {
		if err := unstructured.SetNestedField(o.Object, name, "spec", "controlPlaneEndpoint", "host"); err != nil {
			return err
		}
	}
	if name := v[loadBalancerNameVariable]; name != "" &&
		capi.Text(o, "spec", "controlPlaneLoadBalancer", "name") == "" {
		return unstructured.SetNestedField(o.Object, name, "spec", "controlPlaneLoadBalancer", "name")
	}
	return nil
}
