package steps

import (
	"slices"
)

// Steps of the targets that mend a cluster, as far as they take time.
var (
	restoreTakes = []string{"kind-create", "capi-init", "apply", "servers", "etcd-recover", "etcd-bootstrap", "sweep",
		"etcd-members", "release", "wait-nodes"}
	pivotTakes  = []string{"pivot", "access", "clean"}
	quorumTakes = []string{"survey", "snapshot", "clear", "etcd-recover", "etcd-bootstrap", "etcd-members", "survivor",
		"let-go"}
	readoptTakes = []string{"kind-create", "capi-init", "put-back", "reconcile", "wait-nodes"}
)

// MendingSteps are all of them.
func MendingSteps() []string {
	return slices.Concat(restoreTakes, pivotTakes, quorumTakes, readoptTakes)
}
