package flux

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// State is what an object of Flux says of itself.
type State struct {
	Ready     bool
	Stalled   bool   // no retry will help: the object itself is wrong
	Rejected  bool   // the API server rejects what the attempted revision has, whenever it is tried again
	Suspended bool   // somebody has Flux leave it alone
	Revision  string // branch and commit: what was read, or applied
	Attempted string // of a Kustomization: the revision that was tried last
	Reason    string // why it is not ready; empty: it is
}

// StateOf reads the state of a GitRepository, an OCIRepository or a Kustomization. What its controller said of an older
// generation, or before the request requested (empty: none), does not count.
func StateOf(o *unstructured.Unstructured, requested string) State {
	s := State{Revision: textOf(o, "status", "lastAppliedRevision"), Attempted: textOf(o, "status",
		"lastAttemptedRevision")}
	if s.Revision == "" {
		s.Revision = textOf(o, "status", "artifact", "revision")
	}
	s.Suspended, _, _ = unstructured.NestedBool(o.Object, "spec", "suspend")
	ready, message := condition(o, "Ready")
	switch observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); {
	case s.Suspended:
		s.Reason = "it is suspended"
	case requested != "" && !handled(o, requested):
		s.Reason = "its controller has not reconciled it yet"
		if message != "" && ready != "True" {
			s.Reason += ": " + message
		}
	case ready == "True" && observed >= o.GetGeneration():
		s.Ready = true
	case message != "":
		s.Reason, s.Rejected = message, ready == "False" && why.RejectedStrategy(message) != ""
	default:
		s.Reason = "its controller has said nothing of it yet"
	}
	if stalled, said := condition(o, "Stalled"); stalled == "True" && !s.Ready {
		s.Stalled, s.Reason = true, said
	}
	if explained := why.RejectedStrategy(s.Reason); explained != "" {
		s.Reason += ": " + explained
	}
	if s.Reason != "" {
		s.Reason = fmt.Sprintf("%s: %s", kube.Describe(o), s.Reason)
	}
	return s
}

// handled says whether a controller has reconciled an object since a request that was written to it, or since a later
// one of another program, such as flux reconcile, which takes its place.
func handled(o *unstructured.Unstructured, requested string) bool {
	last := textOf(o, "status", "lastHandledReconcileAt")
	return last != "" && (last == requested || last == o.GetAnnotations()[RequestedAt])
}

// condition is the status and the message of one condition, with its reason unless it says that all is well.
func condition(o *unstructured.Unstructured, kind string) (status, message string) {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range all {
		c, ok := one.(map[string]any)
		if !ok || c["type"] != kind {
			continue
		}
		status, _ = c["status"].(string)
		message, _ = c["message"].(string)
		message = strings.TrimSpace(message) // kustomize-controller ends a list of errors with a newline
		if reason, _ := c["reason"].(string); reason != "" && (kind != "Ready" || status != "True") {
			message = fmt.Sprintf("%s (%s)", message, reason)
		}
	}
	return status, message
}

func textOf(o *unstructured.Unstructured, fields ...string) string {
	value, _, _ := unstructured.NestedString(o.Object, fields...)
	return value
}
