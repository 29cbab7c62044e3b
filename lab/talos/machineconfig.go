package talos

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	siderox509 "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/net"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// machineConfig answers the questions of this package about a machine configuration.
type machineConfig struct {
	config.Provider
}

// cloudMode is the runtime mode in which Talos validates the configuration of a cloud server: nothing is installed, the
// image already is.
type cloudMode struct{}

func (cloudMode) String() string        { return "cloud" }
func (cloudMode) RequiresInstall() bool { return false }
func (cloudMode) InContainer() bool     { return false }

// parseConfig reads and validates a configuration: user data, or what was applied later. An error of user data is what
// keeps a server in maintenance mode.
func parseConfig(userData string) (machineConfig, error) {
	if strings.TrimSpace(userData) == "" {
		return machineConfig{}, errors.New("there is none")
	}
	provider, err := configloader.NewFromBytes([]byte(userData))
	if err != nil {
		return machineConfig{}, fmt.Errorf("parse the machine configuration: %w", err)
	}
	if provider.Machine() == nil || provider.Cluster() == nil {
		return machineConfig{}, errors.New("there is no v1alpha1 machine configuration with a machine and a cluster")
	}
	if _, err := provider.Validate(cloudMode{}); err != nil {
		return machineConfig{}, fmt.Errorf("the machine configuration is not valid: %w", err)
	}
	return machineConfig{provider}, nil
}

func (c machineConfig) controlPlane() bool { return c.Machine().Type().IsControlPlane() }

// hostname returns the node's name. The cloud's metadata is above the automatic hostname of a HostnameConfig, and below
// one that the configuration spells out.
func (c machineConfig) hostname(serverName string) string {
	name := serverName
	if h := c.NetworkHostnameConfig(); h != nil && h.Hostname() != "" {
		name = h.Hostname()
	}
	host, _, _ := strings.Cut(name, ".") // the rest is the domain
	return strings.ToLower(host)
}

// clusterKey identifies a cluster in discovery: by id and shared secret, or by the authority where a configuration has
// neither.
func (c machineConfig) clusterKey() string {
	h := sha256.New()
	if id := c.Cluster().ID(); id != "" {
		fmt.Fprintf(h, "%s\n%s", id, c.Cluster().Secret())
	} else if ca := c.Cluster().IssuingCA(); ca != nil {
		h.Write(ca.Crt)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func parseCA(ca *siderox509.PEMEncodedCertificateAndKey) (*pki.CA, error) {
	if ca == nil {
		return nil, errors.New("the machine configuration has none")
	}
	return pki.ParseCA(pki.Pair{Cert: ca.Crt, Key: ca.Key})
}

// nodeIP picks the kubelet's address out of the server's, private ones first: inside
// machine.kubelet.nodeIP.validSubnets and outside of the cluster's pod and service networks.
func (c machineConfig) nodeIP(addrs []netip.Addr) (netip.Addr, error) {
	subnets := c.Machine().Kubelet().NodeIP().ValidSubnets()
	picked, err := c.filter(addrs, subnets)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("machine.kubelet.nodeIP: %w", err)
	}
	if len(picked) == 0 {
		return netip.Addr{}, fmt.Errorf("no suitable node IP: none of %v is inside machine.kubelet.nodeIP.validSubnets %v "+
			"and outside of the cluster's networks", addrs, subnets)
	}
	return picked[0], nil
}

// etcdIP picks the address on which etcd listens and which it advertises: inside cluster.etcd.advertisedSubnets.
func (c machineConfig) etcdIP(addrs []netip.Addr) (netip.Addr, error) {
	subnets := c.Cluster().Etcd().AdvertisedSubnets()
	picked, err := c.filter(addrs, subnets)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("cluster.etcd.advertisedSubnets: %w", err)
	}
	if len(picked) == 0 {
		return netip.Addr{}, fmt.Errorf("no address for etcd: none of %v is inside cluster.etcd.advertisedSubnets %v", addrs,
			subnets)
	}
	return picked[0], nil
}

// filter returns the addresses inside of the subnets ("!" excludes; none: all) and
// outside of the pod and service networks.
func (c machineConfig) filter(addrs []netip.Addr, subnets []string) ([]netip.Addr, error) {
	network := c.Cluster().Network()
	rules := slices.Clone(subnets)
	if len(rules) == 0 {
		rules = []string{"0.0.0.0/0"}
	}
	for _, cidr := range slices.Concat(network.PodCIDRs(), network.ServiceCIDRs()) {
		rules = append(rules, "!"+cidr)
	}
	return net.FilterIPs(addrs, rules)
}

// apidSANs returns the names and addresses in the machine API's certificate.
func (c machineConfig) apidSANs(hostname string, addrs []netip.Addr) []string {
	return sans(addrs, []string{hostname}, c.Machine().Security().CertSANs())
}

// apiServerSANs returns the names and addresses in the kube-apiserver's certificate.
func (c machineConfig) apiServerSANs(hostname string, addrs []netip.Addr) ([]string, error) {
	network := c.Cluster().Network()
	services, err := network.APIServerIPs()
	if err != nil {
		return nil, fmt.Errorf("cluster.network.serviceSubnets: %w", err)
	}
	return sans(slices.Concat(addrs, services), []string{
		hostname, c.Cluster().Endpoint().Hostname(), "localhost", "127.0.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + network.DNSDomain(),
	}, c.Cluster().CertSANs()), nil
}

// sans joins addresses and names, sorted and without repetition, so that equal inputs give an equal certificate.
func sans(addrs []netip.Addr, names ...[]string) []string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	all = append(all, slices.Concat(names...)...)
	slices.Sort(all)
	return slices.Compact(all)
}

// nodeLabels returns the labels that Talos itself puts on the Node.
func (c machineConfig) nodeLabels() map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, c.Machine().NodeLabels())
	if c.controlPlane() {
		labels[constants.LabelNodeRoleControlPlane] = ""
	}
	return labels
}

// taint is one of machine.nodeTaints, or the taint of control plane nodes.
type taint struct{ Key, Value, Effect string }

// nodeTaints returns the taints that the Node has from its start: those that the kubelet registers it with, and those
// that Talos itself puts on it, sorted by key. Talos does so as the node, and the API server lets no worker's kubelet
// change its taints (admission plugin NodeRestriction), so that a worker gets the first alone.
func (c machineConfig) nodeTaints() []taint {
	taints := c.registerWithTaints()
	if !c.controlPlane() {
		return taints
	}
	if !c.Cluster().ScheduleOnControlPlanes() {
		taints = append(taints, taint{Key: constants.LabelNodeRoleControlPlane, Effect: "NoSchedule"})
	}
	configured := c.Machine().NodeTaints()
	for _, key := range slices.Sorted(maps.Keys(configured)) {
		value, effect, ok := strings.Cut(configured[key], ":")
		if !ok {
			value, effect = "", value
		}
		taints = append(taints, taint{Key: key, Value: value, Effect: effect})
	}
	return taints
}

// registerWithTaints returns the taints in the kubelet's own configuration.
func (c machineConfig) registerWithTaints() (taints []taint) {
	listed, _ := c.Machine().Kubelet().ExtraConfig()["registerWithTaints"].([]any)
	for _, one := range listed {
		fields, _ := one.(map[string]any)
		text := func(key string) string { s, _ := fields[key].(string); return s }
		taints = append(taints, taint{Key: text("key"), Value: text("value"), Effect: text("effect")})
	}
	return taints
}

// kubeletVersion is the tag of the kubelet's image: the version that Cluster API requested.
func (c machineConfig) kubeletVersion() (string, error) {
	return imageTag(c.Machine().Kubelet().Image())
}

// cloudProviderExternal says whether the kubelet registers its Node as uninitialized, for a cloud controller manager.
func (c machineConfig) cloudProviderExternal() bool {
	if args := c.Machine().Kubelet().ExtraArgs()["cloud-provider"]; len(args) > 0 {
		return args[len(args)-1] == "external"
	}
	return c.Cluster().ExternalCloudProvider().Enabled()
}

// rotateServerCertificates says whether the kubelet requests its serving certificate from the cluster instead of
// signing it.
func (c machineConfig) rotateServerCertificates() bool {
	if args := c.Machine().Kubelet().ExtraArgs()["rotate-server-certificates"]; len(args) > 0 {
		return args[len(args)-1] == "true"
	}
	rotate, _ := c.Machine().Kubelet().ExtraConfig()["serverTLSBootstrap"].(bool)
	return rotate
}

// imageTag returns the tag of an image reference, without a digest.
func imageTag(image string) (string, error) {
	ref, _, _ := strings.Cut(image, "@")
	i := strings.LastIndexByte(ref, ':')
	if i < 0 || strings.Contains(ref[i:], "/") {
		return "", fmt.Errorf("image %q has no tag to read a version from", image)
	}
	return ref[i+1:], nil
}

var talosVersion = regexp.MustCompile(`v\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?`)

// versionOf finds the Talos version in the name of a server's image, such as talos-amd64-v1.12.2.
func versionOf(image, otherwise string) string {
	return cmp.Or(talosVersion.FindString(image), otherwise)
}
