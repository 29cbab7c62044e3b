package steps

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// rolling says what of a change of the control plane its servers do not have yet; empty: nothing. The provider replaces them one after
// another, and between two of them their number is the wanted one. Servers that are replaced on their deletion alone
// (rolloutStrategy OnDelete) wait for a person.
func rolling(tcp *unstructured.Unstructured) string {
	if seen, told, _ := unstructured.NestedInt64(tcp.Object, "status", "observedGeneration"); told && seen < tcp.GetGeneration() {
		return "the control plane provider has not looked at the last change yet"
	}
	if text(tcp, "spec", "rolloutStrategy", "type") == "OnDelete" {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(tcp.Object, "status", "conditions")
	for _, c := range conditions {
		m, _ := c.(map[string]any)
		if m["type"] != "MachinesSpecUpToDate" || m["status"] != "False" {
			continue
		}
		how := ""
		if message, _ := m["message"].(string); strings.TrimSpace(message) != "" {
			how = fmt.Sprintf(" (%s)", strings.TrimSpace(message))
		}
		return "the control plane's servers are being replaced, one after another" + how
	}
	return ""
}
