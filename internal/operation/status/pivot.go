package status

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// Pivot is a pivot that was begun and has not ended.
type Pivot struct {
	Phase      string    `json:"phase"` // begun, copied or moving
	Since      time.Time `json:"since,omitzero"`
	Management string    `json:"management"` // what the management cluster holds of the cluster
	Cluster    string    `json:"cluster"`    // what the cluster holds of itself
	Sentence   string    `json:"sentence"`
	Command    string    `json:"command,omitempty"` // resumes it
}

// Phases of a pivot in words.
const pivotBegun records.PivotPhase = "begun" // the step has begun, and has not copied anything

// pivot is a pivot that was begun and has not ended; nil: there is none.
func (l *Reader) pivot(self, beside seenSide) *Pivot {
	state, err := records.PivotCopyOf(l.tools).State(l.cfg.ClusterName)
	if err != nil || state.Phase == records.Settled || l.recorded.Pivot == flow.StateDone || state.Phase == "" &&
		l.recorded.Pivot == "" {
		return nil
	}
	if state.Phase == "" {
		state.Phase = pivotBegun
	}
	name := l.cfg.ClusterName
	p := &Pivot{
		Phase: string(state.Phase), Since: state.Since, Management: holdsOf(beside), Cluster: holdsOf(self),
		Command: l.tools.Command("pivot"),
	}
	where := fmt.Sprintf("management cluster %s %s, cluster %s %s", l.cfg.ManagementName(), p.Management, name, p.Cluster)
	switch state.Phase {
	case records.Moving:
		p.Sentence = fmt.Sprintf("the pivot of cluster %s has not ended: it has begun to move the objects of Cluster API, "+
			"and its controllers are paused until it ends; %s; a copy of every object is in %s",
			name, where, records.PivotCopyOf(l.tools).Files)
	case records.Copied:
		p.Sentence = fmt.Sprintf("the pivot of cluster %s has not ended: it has copied the objects of Cluster API and "+
			"moved none; %s", name, where)
	default:
		p.Sentence = fmt.Sprintf("the pivot of cluster %s has not ended: it has moved no object of Cluster API; %s", name,
			where)
	}
	return p
}

// holdsOf says what a cluster holds of the Cluster object.
func holdsOf(s seenSide) string {
	switch {
	case s.none():
		return "is not known to this state folder"
	case s.err != nil:
		return "could not be asked (" + why.ShortError(s.err.Error()) + ")"
	case s.object == nil:
		return "does not hold the Cluster object"
	case connect.Paused(s.object):
		return "holds the Cluster object, paused"
	}
	return "holds the Cluster object, not paused"
}
