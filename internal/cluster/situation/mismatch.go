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

// nodeHealthyCondition of a Machine is false since its node was not found by its provider ID.
const nodeHealthyCondition = "NodeHealthy"

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
	address := InternalIP(n)
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

// recreated is the Machine of a node whose server CAPH created again, as it does when a server disappears, where the
// node kept the provider ID of the server before; nil: it has that of its Machine.
func recreated(n *corev1.Node, machines []unstructured.Unstructured) *unstructured.Unstructured {
	for i := range machines {
		m := &machines[i]
		id := capi.Text(m, "spec", "providerID")
		if m.GetDeletionTimestamp() == nil && capi.Text(m, "status", "nodeRef", "name") == n.Name && id != "" &&
			n.Spec.ProviderID != "" && id != n.Spec.ProviderID {
			return m
		}
	}
	return nil
}

// mismatchOf tells of a node that it is registered under another name or provider ID than its server has.
func mismatchOf(n *corev1.Node, machines []unstructured.Unstructured) *why.Mismatch {
	providerID, since := "", n.CreationTimestamp.UTC()
	m := Unnamed(n, machines)
	if m == nil {
		if m = recreated(n, machines); m == nil {
			return nil
		}
		providerID, since = capi.Text(m, "spec", "providerID"), capi.FalseCondition(m, nodeHealthyCondition).Since
	}
	_, controlPlane := m.GetLabels()[capi.ControlPlaneLabel]
	return &why.Mismatch{Machine: m.GetName(), Namespace: m.GetNamespace(), ControlPlane: controlPlane,
		Server: capi.Text(m, "spec", "infrastructureRef", "name"), ProviderID: providerID, Since: since}
}

// MismatchProblem says of a control plane node that its name or provider ID is not its server's, and what to do; empty:
// they are.
func MismatchProblem(n *corev1.Node, machines []unstructured.Unstructured) string {
	m := mismatchOf(n, machines)
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s: replace it (replace-machine %s)", m, m.Machine)
}
