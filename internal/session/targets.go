package session

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// Targets that are no steps.
const (
	TargetBootstrap = "bootstrap" // a cluster with all nodes ready
	TargetAll       = "all"       // TargetBootstrap, and the pivot
)

// ResolveTargets turns targets into the names of steps to run; managed tells whether the cluster manages itself. commands
// are other words that the caller knows, which are no targets. Every error is a usage.Error.
func ResolveTargets(words []string, plan *steps.Plan, managed bool, commands ...string) ([]string, error) {
	if len(words) == 0 {
		words = []string{TargetBootstrap}
	}
	var stepNames, names []string
	for _, s := range plan.Graph.Steps() {
		stepNames = append(stepNames, s.Name)
	}
	known := commands
	if len(known) == 0 {
		known = append([]string{TargetBootstrap, TargetAll}, stepNames...)
	}
	for _, word := range words {
		switch {
		case word == TargetBootstrap && managed:
			names = append(names, plan.Managed...)
		case word == TargetBootstrap:
			names = append(names, plan.Bootstrap...)
		case word == TargetAll && !managed && plan.AllRefused != "":
			return nil, usage.Errorf("%s", plan.AllRefused)
		case word == TargetAll && managed && len(plan.Refused) > 0: // PIVOT=false came too late
			names = append(names, append([]string{plan.FirewallApply.Name()}, plan.Managed...)...)
		case word == TargetAll:
			names = append(names, plan.All...)
		case slices.Contains(plan.Refused, word) && !managed:
			return nil, usage.Errorf("PIVOT is false: the cluster stays managed from its management cluster, and %s is not "+
				"run; set PIVOT=true to have the cluster manage itself", word)
		case slices.Contains(stepNames, word):
			names = append(names, word)
		case slices.Contains(known, word):
			return nil, usage.Errorf("%s cannot be combined with other targets", word)
		case usage.DidYouMean("", word, known) != "":
			return nil, usage.Errorf("there is no target %q%s", word, usage.DidYouMean("", word, known))
		default:
			return nil, usage.Errorf("there is no target %q; there are %s", word, strings.Join(known, ", "))
		}
	}
	return names, nil
}
