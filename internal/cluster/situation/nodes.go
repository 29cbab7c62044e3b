package situation

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
)

// UninitializedTaint is on a node until the cloud controller manager has initialized it.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

const ExcludeFromBalancer = "node.kubernetes.io/exclude-from-external-load-balancers"

// NodeProblems says what is wrong with one node. servers are the cluster's, by provider ID; nil: Hetzner has not listed
// them. version is the Kubernetes that it should run; empty: the control plane does not have it.
func NodeProblems(n *corev1.Node, servers map[string]hetzner.Server, network netip.Prefix, version string) []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	if ready, why := NodeReady(n); !ready {
		add("not Ready (%s)", why)
	}
	switch server, ok := servers[n.Spec.ProviderID]; {
	case n.Spec.ProviderID == "":
		add("has no provider ID yet")
	case servers == nil:
	case !ok:
		add("its provider ID %s is none of the cluster's servers", n.Spec.ProviderID)
	case server.Name != n.Name:
		add("its provider ID %s is the server %s", n.Spec.ProviderID, server.Name)
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == UninitializedTaint }) {
		add("has the taint %s: the cloud controller manager has not looked at it", UninitializedTaint)
	}
	if _, ok := n.Labels[ExcludeFromBalancer]; ok {
		add("has the label %s", ExcludeFromBalancer)
	}
	ip := InternalIP(n)
	if a, err := netip.ParseAddr(ip); err != nil || !network.Contains(a) {
		add("its address %q is not in the network %s", ip, network)
	}
	if v := n.Status.NodeInfo.KubeletVersion; version != "" && v != version {
		add("runs Kubernetes %s instead of %s", v, version)
	}
	return problems
}

// NodeReady reports whether a node is Ready, and if not, why.
func NodeReady(n *corev1.Node) (ready bool, why string) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, strings.TrimSpace(c.Reason + " " + c.Message)
		}
	}
	return false, "its kubelet has not reported yet"
}

// InternalIP is a node's first private IPv4 address.
func InternalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); a.Type == corev1.NodeInternalIP && err == nil && ip.Is4() {
			return a.Address
		}
	}
	return ""
}
