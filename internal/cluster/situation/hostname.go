package situation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// talosHostname begins the hostname that Talos chooses while no metadata service has told it one: "talos-1a2-b3c".
const talosHostname = "talos-"

// chosen tells whether a hostname is one that a server has without a metadata service: Talos's own, or one that is
// made of its address, as "10-0-0-3".
func chosen(hostname, address string) bool {
	return strings.HasPrefix(hostname, talosHostname) ||
		strings.Contains(hostname, strings.NewReplacer(".", "-", ":", "-").Replace(address))
}

// Unnamed is the Machine whose server a node is, where the node has a hostname that was chosen without Hetzner's
// metadata service; nil: the node has its server's name, or is of no Machine. The two are compared by their private
// address.
func Unnamed(n *corev1.Node, machines []unstructured.Unstructured) *unstructured.Unstructured {
	address := NodeAddress(n, corev1.NodeInternalIP)
	if n.Spec.ProviderID != "" || address == "" || !chosen(n.Name, address) {
		return nil
	}
	var found *unstructured.Unstructured
	for i := range machines {
		m := &machines[i]
		switch {
		case capi.Text(m, "spec", "infrastructureRef", "name") == n.Name:
			return nil
		case slices.Contains(capi.Addresses(m, capi.AddressInternal), address):
			found = m
		}
	}
	return found
}

// unnamedOf is the same for an explanation.
func unnamedOf(n *corev1.Node, machines []unstructured.Unstructured) *why.Unnamed {
	m := Unnamed(n, machines)
	if m == nil {
		return nil
	}
	_, controlPlane := m.GetLabels()[capi.ControlPlaneLabel]
	return &why.Unnamed{Machine: m.GetName(), Namespace: m.GetNamespace(), ControlPlane: controlPlane,
		Server: capi.Text(m, "spec", "infrastructureRef", "name"), Since: n.CreationTimestamp.UTC()}
}

// UnnamedProblem says of a node that it has no name of a server; empty: it has.
func UnnamedProblem(n *corev1.Node, machines []unstructured.Unstructured) string {
	u := unnamedOf(n, machines)
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s: replace it (replace-machine %s)", u, u.Machine)
}
