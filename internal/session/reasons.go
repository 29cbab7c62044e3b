package session

import (
	"errors"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

// reasonsOnce is a run's error in which a reason that ended several steps at once is written once.
func reasonsOnce(err error) error {
	all, several := err.(interface{ Unwrap() []error })
	if !several {
		return err
	}
	var lines []string
	told := map[string]int{}        // a reason's line
	others := map[string][]string{} // steps that it ended too
	for _, one := range all.Unwrap() {
		step, failed := errors.AsType[*flow.StepError](one)
		reason, known := errors.AsType[*why.Finding](one)
		if failed && known {
			if _, again := told[reason.Error()]; again {
				others[reason.Error()] = append(others[reason.Error()], step.Step)
				continue
			}
			told[reason.Error()] = len(lines)
		}
		lines = append(lines, one.Error())
	}
	if len(others) == 0 {
		return err
	}
	for reason, steps := range others {
		lines[told[reason]] += "\nfor the same reason failed: " + strings.Join(steps, ", ")
	}
	return &RewordedError{strings.Join(lines, "\n"), err}
}

// RewordedError is an error in other words.
type RewordedError struct {
	Text string
	Err  error
}

func (e *RewordedError) Error() string { return e.Text }
func (e *RewordedError) Unwrap() error { return e.Err }
