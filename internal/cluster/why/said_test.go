package why

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Conditions are described in words, without the names that controllers have for them.
func TestSaid(t *testing.T) {
	condition := func(kind, status, reason, message string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message}
	}
	for want, conditions := range map[string][]any{
		"": {condition("Ready", "True", "", "")},
		"its node does not exist": {condition("Ready", "False", "NodeNotFound", ""),
			condition("HealthCheckSucceeded", "False", "NodeNotFound", "")},
		"drain of node a: 1 Pod is left, its server is not there yet": {
			condition("DrainingSucceeded", "False", "DrainingFailed", "drain of node a: 1 Pod is left"),
			condition("InfrastructureReady", "False", "WaitingForInfrastructure", "0 of 5 completed")},
		"placement group gone": {condition("Placed", "False", "PlacementGroupGone", "")},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": conditions}}}
		if got := Said(o); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
