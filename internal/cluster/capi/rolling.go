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
	if c == nil {
		return ""
	}
	how := ""
	if message, _ := c["message"].(string); strings.TrimSpace(message) != "" {
		how = fmt.Sprintf(" (%s)", strings.TrimSpace(message))
	}
	return "the control plane's servers are being replaced, one after another" + how
}

// FalseCondition is an object's condition of a type, where it is false.
func FalseCondition(o *unstructured.Unstructured, kind string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if m, _ := c.(map[string]any); m["type"] == kind && m["status"] == "False" {
			return m
		}
	}
	return nil
}

// Lagging tells that the provider has not looked at the last change yet.
func Lagging(tcp *unstructured.Unstructured) bool {
	seen, told, _ := unstructured.NestedInt64(tcp.Object, "status", "observedGeneration")
	return told && seen < tcp.GetGeneration()
}
