package steps

import (
	"github.com/slipway-k8s/slipway/internal/pivotcopy"
)

// RemovePivotSecrets removes the Secrets that the pivot of an older release, which kept them, left in the state folder.
// The copy of a pivot that is not over is left as it is.
func (p *Plan) RemovePivotSecrets() error {
	c := pivotcopy.In(p.b.tools)
	state, err := c.State(p.b.cfg.ClusterName)
	if err != nil || state.Phase != pivotcopy.Settled {
		return err
	}
	return c.RemoveSecrets()
}

// underway tells flow that the point of no return was passed although the journal does not say so.
func (p pivotStep) underway() (bool, error) {
	return pivotcopy.In(p.tools).Underway(p.cfg.ClusterName)
}
