package cli

import "github.com/slipway-k8s/slipway/internal/session"

// Names of commands and steps that the code needs, too.
const (
	targetBootstrap = session.TargetBootstrap
	targetAll       = session.TargetAll
	targetStatus    = "status"
	targetLogs      = "logs"
	targetReport    = "report"
	targetImage     = "image" // a step, with flags of its own
	targetApply     = "apply"
	targetPivot     = "pivot" // a step, with a flag of its own
	targetDestroy   = "destroy"
	targetAccess    = "access" // a step
	targetFaultAdd  = "lab fault add"
)

// commands are the names of all commands and steps.
func commands() (names []string) {
	plan, err := planForNames()
	if err != nil {
		return nil // who needs the plan says why
	}
	for _, cmd := range newRoot(&call{only: true}, plan).Commands() {
		names = append(names, cmd.Name())
	}
	return names
}
