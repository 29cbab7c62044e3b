package recovery

import (
	"slices"
)

// Steps of the targets that repair a cluster, as far as they take time.
var (
	RestoreSteps = []string{"kind-create", "capi-init", "apply", "servers", "etcd-recover", "etcd-bootstrap", "sweep",
		"etcd-members", "release", "wait-nodes"}
	PivotSteps  = []string{"pivot", "access", "clean"}
	QuorumSteps = []string{"survey", "snapshot", "clear", "etcd-recover", "etcd-bootstrap", "etcd-members", "survivor",
		"let-go"}
	ReadoptSteps = []string{"kind-create", "capi-init", "put-back", "reconcile", "wait-nodes"}
)

// MendingSteps are the steps of all these targets.
func MendingSteps() []string {
	return slices.Concat(RestoreSteps, PivotSteps, QuorumSteps, ReadoptSteps)
}
