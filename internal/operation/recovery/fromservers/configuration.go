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
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// note tells the operator something about what is made.
type note func(format string, args ...any)

// overrides notes that the cluster has another value than the configuration, and takes it.
func (n note) overrides(to *string, name, is string) {
	if is != "" && is != *to {
		n("%s is %q in the configuration, and %q in the cluster, which counts", name, *to, is)
		*to = is
	}
}

// overridesList is overrides for a value that may list several.
func (n note) overridesList(to *string, name, is string) {
	if !slices.Contains(config.Listed(*to), is) {
		n.overrides(to, name, is)
	}
}

// configuration overrides a configuration with the values that the cluster has.
func (s *survey) configuration(cfg config.Config, note note) (config.Config, error) {
	one, host := s.newest(), s.host()
	if host == "" {
		return cfg, usage.Errorf("the machine configuration of server %s names no endpoint of the Kubernetes API",
			one.Name)
	}
	if s.foreign != nil {
		note("%v", s.foreign)
	}
	network := one.config.Cluster().Network()
	cfg.Spread = config.SpreadHost
	if has := len(s.servers); has != cfg.ControlPlaneReplicas {
		note("the control plane has %d servers and is to keep them; the configuration has %d: scale control-plane %d "+
			"afterwards", has, cfg.ControlPlaneReplicas, cfg.ControlPlaneReplicas)
		cfg.ControlPlaneReplicas = has
	}
	note.overrides(&cfg.KubernetesVersion, "KUBERNETES_VERSION", oldest(s.servers))
	note.overrides(&cfg.TalosVersion, "TALOS_VERSION", one.talos)
	note.overrides(&cfg.PodCIDR, "POD_CIDR", first(network.PodCIDRs()))
	note.overrides(&cfg.ServiceCIDR, "SERVICE_CIDR", first(network.ServiceCIDRs()))
	note.overrides(&cfg.NetworkCIDR, "NETWORK_CIDR", s.network.whole)
	note.overrides(&cfg.ControlPlaneCIDR, "CONTROL_PLANE_CIDR", s.network.servers)
	note.overridesList(&cfg.ServerType, "SERVER_TYPE", one.Type)
	if s.balancer != nil {
		note.overrides(&cfg.LoadBalancerType, "LOAD_BALANCER_TYPE", s.balancer.Type)
		note.overridesList(&cfg.Location, "LOCATION", s.balancer.Location)
	}
	kind := config.EndpointLoadBalancer
	switch _, err := netip.ParseAddr(host); {
	case err != nil:
		kind = host
	case s.primaryIP != nil && s.primaryIP.IPv4.String() == host:
		kind = config.EndpointPrimaryIP
	}
	note.overrides(&cfg.ControlPlaneEndpoint, "CONTROL_PLANE_ENDPOINT", kind)
	for _, other := range s.servers {
		if other.config != nil && other.kind() != one.kind() {
			note("server %s (%s) is not as the newest, %s (%s), and stays: a rollout that was under way is not "+
				"continued", other.Name, other.kind(), one.Name, one.kind())
		}
	}
	return cfg, nil
}

// kind is what a rollout changes of a server, besides its machine configuration.
func (one server) kind() string { return one.Type + ", Talos " + one.talos }

// kubernetes is the version of Kubernetes that a server runs; empty: that is not known.
func (one server) kubernetes() string {
	if one.node != nil {
		return one.node.Status.NodeInfo.KubeletVersion
	}
	return ""
}

// oldest is the oldest version of Kubernetes that servers run.
func oldest(servers []server) (found string) {
	for _, one := range servers {
		is, err := version.ParseSemantic(one.kubernetes())
		if err != nil {
			continue
		}
		if other, err := version.ParseSemantic(found); err != nil || is.LessThan(other) {
			found = one.kubernetes()
		}
	}
	return found
}

// image is the name of the image that a server of the same kind is made from. The snapshot that a server was made from
// has an older Talos where that was upgraded in place.
func (one server) image(named string) string {
	if was := config.TalosOfImage(one.Image); one.Image == "" || was != "" && was != one.talos {
		return named
	}
	return one.Image
}

// variables are the variables of the manifests with what the cluster has.
func (s *survey) variables(cfg config.Config, sources render.Sources) render.Variables {
	one, host := s.newest(), s.host()
	place := render.Placement{ServerType: one.Type, Location: cfg.PreferredLocation(),
		Schedulable:   fmt.Sprint(one.config.Cluster().ScheduleOnControlPlanes()),
		MetadataRoute: one.metadataRoute()}
	if s.balancer != nil {
		place.Location = s.balancer.Location
	}
	endpoint := render.Endpoint{IP: cmp.Or(s.address(), host)}
	if s.primaryIP != nil && cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer {
		endpoint.LoadBalancer = s.primaryIP.Name
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
		if name, is := strings.CutPrefix(group, cfg.ClusterName+"-"); is && group != cfg.ControlPlaneName() {
			place.PoolGroups = append(place.PoolGroups, name)
		}
	}
	image := one.image(cfg.Image(s.architectures[one.Type]))
	return render.ManifestVariables(sources, image, config.NetworkZone(place.Location), endpoint).Placed(place)
}

// metadataRoute is "false" where a server has no route to Hetzner's metadata.
func (one server) metadataRoute() string {
	if text, err := one.config.Bytes(); err == nil && !bytes.Contains(text, []byte(render.MetadataAddress)) {
		return "false"
	}
	return ""
}

func first(all []string) string { return strings.Join(all[:min(1, len(all))], "") }
