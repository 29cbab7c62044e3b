package cli

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/effect"
	"github.com/slipway-k8s/slipway/internal/statedir"
)

// recorder makes the recorder of a run, once its files and its hub are there.
func (r *running) recorder() *effect.Recorder {
	o := effect.Options{
		Lines: r.hide.Writer(r.files.Effects),
		Warn: func(err error) {
			r.hub.Note("what this run changes is not written down any more (%v); the run goes on, and what it knows of the cluster is in the journal", err)
		},
		Step:  r.stepOf,
		Watch: r.watchCalls(),
	}
	if r.faults != nil {
		o.Faults = r.faults()
	}
	return effect.New(o)
}

// stepOf is the step that a context belongs to. Not every library hands the
// context on; where one step alone is at work it is that.
func (r *running) stepOf(ctx context.Context) string {
	if name := flow.StepName(ctx); name != "" {
		return name
	}
	return r.hub.Alone()
}

// retire is stateFolder's, written down.
func retire(r *running) (record string, err error) {
	err = r.effects.Do(context.Background(), effect.File, statedir.VerbRetire, statedir.JournalFile, func() error {
		record, err = r.state.Retire(r.began)
		return err
	})
	return record, err
}
