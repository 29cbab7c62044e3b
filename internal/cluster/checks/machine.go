package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// madeUpEndpoint is the control plane endpoint of configurations that are only judged: render.MadeUp has its address.
const madeUpEndpoint = "https://192.0.2.1:6443"

// publicInterface is the interface with the servers' public address, by which they reach everything outside.
const publicInterface = "eth0"

// privateInterface is what the servers of Hetzner Cloud call the interface in the private network: eth0 is the public
// one.
const privateInterface = "eth1"

// machineConfiguration is the configuration of a server as Talos merges it: generated, and patched.
type machineConfiguration struct {
	machineconfig.Provider
	kind machine.Type
}

// unfit is what does not work in a cluster that Slipway makes.
type unfit struct {
	path          string // that is wrong: "spec.replicas"; empty: none is
	problem, hint string
	document      string // kind of the document of a machine configuration that is wrong; empty: the one without a kind
}

// unfitAt is a path with what is wrong with it.
func unfitAt(path, hint, format string, args ...any) *unfit {
	return &unfit{path: path, hint: hint, problem: path + " " + fmt.Sprintf(format, args...)}
}

// writtenIn is the last patch that has what is wrong, and the line in it, beginning with 1; -1: none has.
func (u unfit) writtenIn(patches []string) (i, line int) {
	for i, patch := range slices.Backward(patches) {
		for n, text := range strings.Split(patch, "\n") {
			if u.document != "" && strings.TrimSpace(text) == "kind: "+u.document {
				return i, n + 1
			}
		}
		if line := lineOfKey(patch, fieldPath(u.path)); line > 0 {
			return i, line
		}
	}
	return -1, 0
}

// unfit is all of what Talos accepts, and what the rest of the cluster does not work with.
func (m machineConfiguration) unfit(cfg config.Config, sources render.Sources) []unfit {
	all := m.unmet()
	for _, judge := range []func(config.Config, render.Sources) *unfit{
		m.unfitEndpoint, m.unfitPort, m.unfitHostname, m.unfitImages, m.unfitTalosAPIAccess, m.unfitNetwork, m.unfitRanges,
		m.unfitFirewall} {
		if u := judge(cfg, sources); u != nil {
			all = append(all, *u)
		}
	}
	return all
}

// wants are what the configuration must come to.
func (m machineConfiguration) wants() []want {
	all := []want{
		{"machine.features.kubePrism.enabled", "true", "Cilium and the Hetzner CCM reach the API server by it, " +
			"at localhost:" + kubePrismPort},
		{"machine.features.kubePrism.port", kubePrismPort, "Cilium and the Hetzner CCM reach the API server there"},
	}
	if m.kind != machine.TypeControlPlane {
		return all
	}
	return append(all,
		want{"cluster.network.cni.name", "none", "Cilium is installed in place of Talos's own network"},
		want{"cluster.proxy.disabled", "true", "Cilium takes kube-proxy's place"},
		want{"cluster.externalCloudProvider.enabled", "true", "the Hetzner CCM names the nodes' servers"},
		want{"machine.features.kubernetesTalosAPIAccess.enabled", "true", "the Talos CCM asks the " +
			"Talos API, from namespace kube-system with role os:reader"},
		want{"machine.kubelet.extraArgs.rotate-server-certificates", "true", "the Talos CCM approves the " +
			"kubelets' certificates"})
}

// kubePrismPort is where KubePrism listens on every node, by Talos's default and by the built-in values.
const kubePrismPort = "7445"

func (m machineConfiguration) unmet() []unfit {
	values := map[string]any{}
	data, err := encoder.NewEncoder(m.RawV1Alpha1(), encoder.WithComments(encoder.CommentsDisabled)).Encode()
	if err == nil {
		err = yaml.Unmarshal(data, &values)
	}
	if err != nil {
		return []unfit{{problem: "the configuration that they result in cannot be read: " + err.Error(),
			hint: "correct the patches"}}
	}
	var all []unfit
	for _, u := range unmetOf(values, m.wants()) {
		all = append(all, unfit{problem: u.problem(), hint: "write " + u.hint(), path: u.path})
	}
	return all
}

func (m machineConfiguration) unfitEndpoint(config.Config, render.Sources) *unfit {
	if is := m.Cluster().Endpoint(); is != nil && is.String() != madeUpEndpoint {
		return unfitAt("cluster.controlPlane.endpoint", "remove it", "is %s: the provider writes the address of the control "+
			"plane there, which is known only once it exists; nodes would join another cluster, or none", is)
	}
	return nil
}

// unfitTalosAPIAccess looks for an access to the Talos API that the Talos CCM's Pod does not get: its chart asks for
// the role os:reader, in namespace kube-system, where the step installs it.
func (m machineConfiguration) unfitTalosAPIAccess(config.Config, render.Sources) *unfit {
	access := m.Machine().Features().KubernetesTalosAPIAccess()
	if m.kind != machine.TypeControlPlane || !access.Enabled() {
		return nil
	}
	if is := access.AllowedRoles(); !slices.Contains(is, "os:reader") {
		return unfitAt("machine.features.kubernetesTalosAPIAccess.allowedRoles", "add os:reader", "is %s: the Talos CCM asks "+
			"the Talos API with role os:reader", listed(is))
	}
	if is := access.AllowedKubernetesNamespaces(); !slices.Contains(is, "kube-system") {
		return unfitAt("machine.features.kubernetesTalosAPIAccess.allowedKubernetesNamespaces", "add kube-system", "is %s: "+
			"the Talos CCM runs in kube-system", listed(is))
	}
	return nil
}

// unfitNetwork looks for a private interface that gets no address. One without any configuration gets it by DHCP,
// unless documents of the newer kind configure the network: then Talos configures nothing by itself.
func (m machineConfiguration) unfitNetwork(config.Config, render.Sources) *unfit {
	const (
		path = "machine.network.interfaces"
		hint = "write interface: " + privateInterface + " with dhcp: true"
		why  = ": the nodes' addresses are those in the private network"
	)
	const shared = ": the patch is every server's, and Hetzner gives each server an address of its own"
	selected, configured := false, false
	for _, d := range m.Machine().Network().Devices() {
		selected = selected || d.Selector() != nil
		if d.Interface() == publicInterface && d.Ignore() {
			return &unfit{path: path, hint: "write interface: " + publicInterface + " with dhcp: true", problem: "the interface " +
				publicInterface + " is ignored: servers reach registries, and what Hetzner tells of them, by it"}
		}
		if d.Interface() != privateInterface {
			continue
		}
		configured = true
		if d.Ignore() {
			return &unfit{path: path, hint: hint, problem: "the interface " + privateInterface + " is ignored" + why}
		}
		if !d.DHCP() && len(d.Addresses()) == 0 {
			return &unfit{path: path, hint: hint, problem: "the interface " + privateInterface + " gets no address: " +
				"neither by DHCP nor by addresses" + why}
		}
		if !d.DHCP() {
			return &unfit{path: path, hint: hint, problem: fmt.Sprintf("the interface %s has %s, and no DHCP%s",
				privateInterface, listed(d.Addresses()), shared)}
		}
	}
	for _, d := range m.NetworkDHCPv4Configs() {
		configured = configured || d.Name() == privateInterface
	}
	for _, l := range m.NetworkCommonLinkConfigs() {
		if l.Name() == privateInterface && len(l.Addresses()) > 0 && !configured {
			return &unfit{document: "LinkConfig", hint: "add a document of kind DHCPv4Config with name: " +
				privateInterface + ", and remove its addresses",
				problem: fmt.Sprintf("the interface %s has addresses, and no DHCP%s", privateInterface, shared)}
		}
	}
	if !configured && !selected && !m.RunDefaultDHCPOperators() && len(m.NetworkLinkAliasConfigs()) == 0 {
		return &unfit{hint: "add a document of kind DHCPv4Config with name: " + privateInterface, problem: "documents " +
			"configure the network, so that Talos runs no DHCP by itself, and none gives " + privateInterface + " an address" + why}
	}
	return nil
}

// unfitRanges looks for ranges that are not those of the cluster.
func (m machineConfiguration) unfitRanges(cfg config.Config, _ render.Sources) *unfit {
	network, err := netip.ParsePrefix(cfg.NetworkCIDR)
	if err != nil {
		return nil // the configuration's own checks say so
	}
	if is := m.Cluster().Network().PodCIDRs(); m.kind == machine.TypeControlPlane && !slices.Equal(is, []string{cfg.PodCIDR}) {
		return unfitAt("cluster.network.podSubnets", "write ${POD_CIDR}, or remove it", "is %s, and the Cluster's Pods have %s",
			listed(is), cfg.PodCIDR)
	}
	if is := m.Cluster().Network().ServiceCIDRs(); m.kind == machine.TypeControlPlane && !slices.Equal(is, []string{cfg.ServiceCIDR}) {
		return unfitAt("cluster.network.serviceSubnets", "write ${SERVICE_CIDR}, or remove it", "is %s, and the Cluster's "+
			"Services have %s", listed(is), cfg.ServiceCIDR)
	}
	if is := m.Machine().Kubelet().NodeIP().ValidSubnets(); len(is) > 0 && !anyOverlaps(is, network) {
		return unfitAt("machine.kubelet.nodeIP.validSubnets", "write ${NETWORK_CIDR}", "is %s, and the servers' network is "+
			"%s: the kubelets would find no address", listed(is), network)
	}
	if m.kind != machine.TypeControlPlane {
		return nil
	}
	if is := m.Cluster().Etcd().AdvertisedSubnets(); len(is) > 0 && !anyOverlaps(is, network) {
		return unfitAt("cluster.etcd.advertisedSubnets", "write ${CONTROL_PLANE_CIDR}", "is %s, and the servers' network is "+
			"%s: etcd would find no address", listed(is), network)
	}
	return nil
}

func listed(all []string) string { return "[" + strings.Join(all, ", ") + "]" }

// anyOverlaps reports whether one of the ranges, of which some may be exclusions ("!10.0.0.0/8"), overlaps another.
func anyOverlaps(ranges []string, with netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(text string) bool {
		is, err := netip.ParsePrefix(text)
		return err == nil && is.Overlaps(with)
	})
}

// opening is a port that has to be open between the servers.
type opening struct {
	protocol nethelpers.Protocol
	port     uint16
	what     string
}

// openings are the ports that servers of this kind are reached at, from servers and the load balancer.
func (m machineConfiguration) openings(cfg config.Config, sources render.Sources) []opening {
	tcp := nethelpers.ProtocolTCP
	all := []opening{{tcp, 10250, "the kubelet"}, {tcp, 50000, "the Talos API"}}
	if m.kind == machine.TypeControlPlane {
		all = append(all, opening{tcp, 6443, "the Kubernetes API"})
		if cfg.ControlPlaneReplicas > 1 {
			all = append(all, opening{tcp, 2379, "etcd's clients"}, opening{tcp, 2380, "etcd's members"})
		}
		if len(cfg.Workers) > 0 {
			all = append(all, opening{tcp, 50001, "trustd, which gives the workers their certificates"})
		}
	}
	if port := tunnelPort(sources); port > 0 && cfg.ControlPlaneReplicas+len(cfg.Workers) > 1 {
		all = append(all, opening{nethelpers.ProtocolUDP, port, "Cilium's tunnel between the nodes' Pods"})
	}
	return all
}

// unfitFirewall looks for a firewall of Talos that blocks what the cluster needs.
func (m machineConfiguration) unfitFirewall(cfg config.Config, sources render.Sources) *unfit {
	servers, err := netip.ParsePrefix(cfg.ControlPlaneCIDR)
	if err != nil || m.NetworkRules().DefaultAction() != nethelpers.DefaultActionBlock {
		return nil
	}
	var closed []string
	for _, o := range m.openings(cfg, sources) {
		open := slices.ContainsFunc(m.NetworkRules().Rules(), func(r talosconfig.NetworkRule) bool {
			return r.Protocol() == o.protocol &&
				slices.ContainsFunc(r.PortRanges(), func(p [2]uint16) bool { return p[0] <= o.port && o.port <= p[1] }) &&
				covered(servers, r.Subnets(), r.ExceptSubnets())
		})
		if !open {
			closed = append(closed, fmt.Sprintf("%d/%s (%s)", o.port, o.protocol, o.what))
		}
	}
	if len(closed) == 0 {
		return nil
	}
	return &unfit{document: "NetworkDefaultActionConfig",
		problem: fmt.Sprintf("ingress is blocked, and no NetworkRuleConfig opens %s to the servers' range %s",
			strings.Join(closed, ", "), servers),
		hint: "add documents of kind NetworkRuleConfig for these ports, with that range as subnet, or remove ingress: block: the " +
			"firewall of Hetzner, which FIREWALL_ALLOW configures, is before the servers anyway"}
}
