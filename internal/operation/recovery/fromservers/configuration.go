package fromservers

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// configuration is a configuration with what the cluster has. What differs is noted.
func (s *survey) configuration(cfg config.Config, note func(string, ...any)) (config.Config, error) {
	one := s.newest()
	network := one.config.Cluster().Network()
	cfg.ControlPlaneReplicas, cfg.Spread = s.replicas(cfg, note), config.SpreadHost
	set := func(to *string, name, is string) {
		if is != "" && is != *to {
			note("%s is %q in the configuration, and %q in the cluster, which counts", name, *to, is)
			*to = is
		}
	}
	set(&cfg.KubernetesVersion, "KUBERNETES_VERSION", kubernetesOf(s.servers))
	set(&cfg.TalosVersion, "TALOS_VERSION", one.talos)
	set(&cfg.PodCIDR, "POD_CIDR", first(network.PodCIDRs()))
	set(&cfg.ServiceCIDR, "SERVICE_CIDR", first(network.ServiceCIDRs()))
	if !slices.Contains(cfg.ServerTypes(), one.Type) {
		set(&cfg.ServerType, "SERVER_TYPE", one.Type)
	}
	for _, r := range s.inventory {
		switch {
		case r.Kind == hetzner.KindNetwork:
			set(&cfg.NetworkCIDR, "NETWORK_CIDR", first(r.Addresses))
		case r.Kind == hetzner.KindLoadBalancer && s.balancer != nil && r.ID == s.balancer.ID:
			set(&cfg.LoadBalancerType, "LOAD_BALANCER_TYPE", r.Type)
			if !slices.Contains(cfg.Locations(), r.Location) {
				set(&cfg.Location, "LOCATION", r.Location)
			}
		}
	}
	host, err := s.host()
	if err != nil {
		return cfg, err
	}
	kind := config.EndpointLoadBalancer
	switch _, err := netip.ParseAddr(host); {
	case err != nil:
		kind = host
	case s.endpoint != nil && s.endpoint.IPv4.String() == host:
		kind = config.EndpointPrimaryIP
	}
	set(&cfg.ControlPlaneEndpoint, "CONTROL_PLANE_ENDPOINT", kind)
	return cfg, nil
}

// replicas is how many servers the control plane has: with more, the objects would have the control plane provider
// create servers as soon as it works again.
func (s *survey) replicas(cfg config.Config, note func(string, ...any)) int {
	has := len(s.servers)
	if has != cfg.ControlPlaneReplicas {
		note("the control plane has %d servers and is to keep them, where the configuration has %d: scale it afterwards",
			has, cfg.ControlPlaneReplicas)
	}
	return has
}

// kubernetesOf is the oldest version of Kubernetes that a node runs.
func kubernetesOf(servers []server) (oldest string) {
	for _, one := range servers {
		if one.node == nil {
			continue
		}
		is := one.node.Status.NodeInfo.KubeletVersion
		parsed, err := version.ParseSemantic(is)
		if err != nil {
			continue
		}
		if other, err := version.ParseSemantic(oldest); err != nil || parsed.LessThan(other) {
			oldest = is
		}
	}
	return oldest
}

// host is the host by which the cluster's own programs address its API.
func (s *survey) host() (string, error) {
	endpoint := s.newest().config.Cluster().Endpoint()
	if endpoint == nil || endpoint.Hostname() == "" {
		return "", usage.Errorf("the machine configuration of server %s names no endpoint of the Kubernetes API",
			s.newest().Name)
	}
	return endpoint.Hostname(), nil
}

// variables are the variables of the manifests with what the cluster has.
func (s *survey) variables(cfg config.Config, sources render.Sources) (render.Variables, error) {
	host, err := s.host()
	if err != nil {
		return nil, err
	}
	one := s.newest()
	place := render.Placement{ServerType: one.Type, Location: cfg.PreferredLocation(),
		Schedulable:   fmt.Sprint(one.config.Cluster().ScheduleOnControlPlanes()),
		MetadataRoute: one.metadataRoute()}
	endpoint := render.Endpoint{IP: host}
	if s.balancer != nil {
		endpoint.IP = s.balancer.IPv4
		for _, r := range s.inventory {
			if r.Kind == hetzner.KindLoadBalancer && r.ID == s.balancer.ID {
				place.Location = r.Location
			}
		}
	}
	if s.endpoint != nil && cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer {
		endpoint.LoadBalancer = s.endpoint.Name
	}
	if endpoint.IP != host {
		endpoint.HostName = host
	}
	for _, one := range s.servers {
		if !slices.Contains(place.Locations, one.Location) {
			place.Locations = append(place.Locations, one.Location)
		}
	}
	slices.Sort(place.Locations)
	for _, group := range s.groups {
		if name, is := strings.CutPrefix(group, cfg.ClusterName+"-"); is && name != controlPlaneGroup {
			place.PoolGroups = append(place.PoolGroups, name)
		}
	}
	image := cmp.Or(one.Image, cfg.Image(s.architecture))
	v := render.ManifestVariables(sources, image, config.NetworkZone(place.Location), endpoint)
	return v.Placed(place), nil
}

// metadataRoute is "false" where a server has no route to Hetzner's metadata.
func (one server) metadataRoute() string {
	if text, err := one.config.Bytes(); err == nil && !bytes.Contains(text, []byte(metadataAddress)) {
		return "false"
	}
	return ""
}

// metadataAddress is where servers find Hetzner's metadata.
const metadataAddress = "169.254.169.254"

// controlPlaneGroup is the placement group of the control plane in the built-in manifest.
const controlPlaneGroup = "control-plane"

func first(all []string) string { return strings.Join(all[:min(1, len(all))], "") }
