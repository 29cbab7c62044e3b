package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// strategyRejected is how an API server rejects a Deployment or a StatefulSet whose update strategy is another one and
// has the parameters of a rolling update still.
var strategyRejected = regexp.MustCompile(`(Deployment|StatefulSet)\.apps "([^"]+)" is invalid: .*?` +
	`(?:spec\.strategy\.rollingUpdate: Forbidden: may not be specified when strategy .?type.? is '(\w+)'|` +
	`spec\.updateStrategy\.rollingUpdate: Invalid value: .*?: only allowed for updateStrategy 'RollingUpdate')`)

// dryRunOf is how kustomize-controller names the object that it could not apply.
var dryRunOf = regexp.MustCompile(`(?:Deployment|StatefulSet)/([^/\s]+)/([^/\s]+) dry-run failed`)

// RejectedStrategy explains a message of Flux's controllers which says that the API server rejects a Deployment or a
// StatefulSet because its update strategy changed from RollingUpdate to another one, and what the operator does then;
// empty: it says no such thing. No retry mends that: server-side apply removes only fields that its manager owns, and
// the API server has set rollingUpdate by default.
func RejectedStrategy(message string) string {
	var all []string
	for line := range strings.Lines(message) {
		found := strategyRejected.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		kind, name, field, strategy := found[1], found[2], "strategy", found[3]
		if kind == "StatefulSet" {
			field, strategy = "updateStrategy", "OnDelete" // the only other one
		}
		namespace, by := "NAMESPACE", ""
		if object := dryRunOf.FindStringSubmatch(line); object != nil && object[2] == name {
			namespace = object[1]
			by = "; or have Flux replace the object, with its Pods: annotate it in Git with " +
				"kustomize.toolkit.fluxcd.io/force: enabled"
		}
		all = append(all, fmt.Sprintf("the update strategy of %s %s was changed from RollingUpdate to %s, and server-side "+
			"apply does not remove the field %s.rollingUpdate, which the API server has set by default; rollingUpdate: null "+
			"in Git does not do it either. Remove it once, which restarts no Pod: kubectl --namespace %s patch %s %s --type "+
			`merge --patch '{"spec":{"%s":{"type":"%s","rollingUpdate":null}}}'%s`, kind, name, strategy, field, namespace,
			strings.ToLower(kind), name, field, strategy, by))
	}
	return strings.Join(slices.Compact(all), "; ")
}
