package cli

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// Names of commands and steps that the code needs, too.
const (
	targetBootstrap = "bootstrap"
	targetAll       = "all"
	targetStatus    = "status"
	targetLogs      = "logs"
	targetReport    = "report"
	targetImage     = "image" // a step, with flags of its own
	targetPivot     = "pivot" // a step, with a flag of its own
	targetDestroy   = "destroy"
	targetAccess    = "access" // a step
	targetFaultAdd  = "lab fault add"
)

// resolveTargets turns targets into the names of steps to run, of a cluster that
// manages itself or does not. Every error is a usage.Error.
func resolveTargets(words []string, plan *steps.Plan, managed bool) ([]string, error) {
	if len(words) == 0 {
		words = []string{targetBootstrap}
	}
	var known []string
	for _, cmd := range newRoot(&invocation{only: true}, plan).Commands() {
		known = append(known, cmd.Name())
	}
	var stepNames, names []string
	for _, s := range plan.Graph.Steps() {
		stepNames = append(stepNames, s.Name)
	}
	for _, word := range words {
		switch {
		case word == targetBootstrap && managed:
			names = append(names, plan.Managed...)
		case word == targetBootstrap:
			names = append(names, plan.Bootstrap...)
		case word == targetAll && !managed && plan.AllRefused != "":
			return nil, usage.Errorf("%s", plan.AllRefused)
		case word == targetAll && managed && len(plan.Refused) > 0: // PIVOT=false came too late
			names = append(names, append([]string{plan.FirewallApply.Name()}, plan.Managed...)...)
		case word == targetAll:
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
