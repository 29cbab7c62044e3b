package capi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Rolling says what of a change of the control plane its servers do not have yet; empty: nothing. The provider replaces
// them one after another, and between two of them their number is the wanted one. Servers that are replaced on their
// deletion alone (rolloutStrategy OnDelete) wait for a person.
func Rolling(tcp *unstructured.Unstructured) string {
	if Lagging(tcp) {
		return "the control plane provider has not looked at the last change yet"
	}
	if Text(tcp, "spec", "rolloutStrategy", "type") == "OnDelete" {
		return ""
	}
	c := FalseCondition(tcp, "MachinesSpecUpToDate")
	if c == (Condition{}) {
		return ""
	}
	how := ""
	if message := strings.TrimSpace(c.Message); message != "" {
		how = fmt.Sprintf(" (%s)", message)
	}
	return "the control plane's servers are being replaced, one after another" + how
}

// Lagging tells that the provider has not looked at the last change yet.
func Lagging(tcp *unstructured.Unstructured) bool {
	seen, told, _ := unstructured.NestedInt64(tcp.Object, "status", "observedGeneration")
	return told && seen < tcp.GetGeneration()
}
