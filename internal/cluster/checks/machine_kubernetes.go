package checks

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

const hostnameHint = "remove the name from the patch: the node must be called like its server, which Talos learns " +
	"from Hetzner"

const hostnamePath = "machine.network.hostname"

// ownHostname is the last patch that names the server, and the line in it; -1: none does.
func ownHostname(patches []string) (i, line int) {
	if i, line = (unfit{path: hostnamePath}).writtenIn(patches); i >= 0 {
		return i, line
	}
	return unfit{document: "HostnameConfig"}.writtenIn(patches)
}

// unfitHostname looks for one name for all servers.
func (m machineConfiguration) unfitHostname(config.Config, render.Sources) *unfit {
	name := m.NetworkHostnameConfig()
	if name == nil || name.Hostname() == "" {
		return nil
	}
	u := unfit{path: hostnamePath, hint: hostnameHint,
		problem: fmt.Sprintf("every server would be called %s: CAPH and the Hetzner CCM find no server of that name",
			name.Hostname())}
	//lint:ignore SA1019 configurations of Talos before 1.12 have the name there
	if network := m.RawV1Alpha1().MachineConfig.MachineNetwork; network == nil || network.NetworkHostname == "" {
		u.document = "HostnameConfig"
	}
	return &u
}

// unfitPort looks for a kube-apiserver that the load balancer does not lead to.
func (m machineConfiguration) unfitPort(config.Config, render.Sources) *unfit {
	if is := m.Cluster().LocalAPIServerPort(); m.kind == machine.TypeControlPlane && is != apiServerPort {
		return unfitAt("cluster.controlPlane.localAPIServerPort", "remove it", "is %d, and the load balancer leads to %d", is,
			apiServerPort)
	}
	return nil
}

// versionTag is the Kubernetes version in an image's name.
var versionTag = regexp.MustCompile(`:(v\d+\.\d+\.\d+)(@sha256:[0-9a-f]{64})?$`)

// unfitImages looks for components of Kubernetes of another version than the cluster's.
func (m machineConfiguration) unfitImages(cfg config.Config, _ render.Sources) *unfit {
	images := map[string]string{"machine.kubelet.image": m.Machine().Kubelet().Image()}
	if m.kind == machine.TypeControlPlane {
		images["cluster.apiServer.image"] = m.Cluster().APIServer().Image()
		images["cluster.controllerManager.image"] = m.Cluster().ControllerManager().Image()
		images["cluster.scheduler.image"] = m.Cluster().Scheduler().Image()
	}
	for _, path := range slices.Sorted(maps.Keys(images)) {
		if tag := versionTag.FindStringSubmatch(images[path]); tag != nil && tag[1] != cfg.KubernetesVersion {
			return unfitAt(path, "write the tag ${KUBERNETES_VERSION}, or remove it", "is %s, and the cluster's Kubernetes is %s",
				images[path], cfg.KubernetesVersion)
		}
	}
	return nil
}

// covered reports whether ranges, less others, have all addresses of a range in them.
func covered(p netip.Prefix, ranges, except []netip.Prefix) bool {
	within := func(other netip.Prefix) bool { return inside(p, other) }
	touches := func(other netip.Prefix) bool { return p.Overlaps(other) }
	switch {
	case slices.ContainsFunc(except, within), !slices.ContainsFunc(ranges, touches):
		return false
	case slices.ContainsFunc(ranges, within) && !slices.ContainsFunc(except, touches):
		return true
	case p.Bits() == p.Addr().BitLen():
		return false
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	high, _ := netip.AddrFromSlice(bytes)
	return covered(low, ranges, except) && covered(netip.PrefixFrom(high, p.Bits()+1), ranges, except)
}

func inside(child, parent netip.Prefix) bool {
	return child.Bits() >= parent.Bits() && parent.Contains(child.Addr())
}
