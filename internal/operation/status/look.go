package status

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// silentAfter is when a source that has not answered at all counts as silent.
	silentAfter = 2 * time.Second
	// answersWithin is how long a source that has begun to answer may take for the rest, as on a loaded machine.
	answersWithin = 8 * time.Second
)

// Reader is one look at the cluster that asks every source at once and by itself: Hetzner, the management cluster, the
// cluster's API and each server's Talos. One that is silent costs two seconds, and keeps nothing back of what the
// others say.
type Reader struct {
	cfg      config.Config
	tools    platform.Tools
	observer *situation.Observer
	recorded Recorded
	hetzner  *inquiry
	mgmt     *inquiry // the management cluster beside the cluster
	api      *inquiry // the cluster itself

	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// Recorded is what the journal has of the steps that a look needs to know of.
type Recorded struct {
	APIAnswered bool // the step wait-cp is done: the cluster's API has answered once
	Pivot       flow.State
	// Pauses is the operation that was begun and pauses the cluster until it ends; empty: none.
	Pauses string
}

// Begin begins a look, which must be closed.
func Begin(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources,
	recorded Recorded) *Reader {
	tools = tools.WithDefaults()
	l := &Reader{
		cfg: cfg, tools: tools, observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}, recorded: recorded,
		began: time.Now(),
	}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.hetzner, l.mgmt, l.api = ask(l.ctx, "Hetzner"), ask(l.ctx, "the management cluster"), ask(l.ctx, "the cluster's API")
	context.AfterFunc(l.ctx, l.end)
	go l.bound()
	return l
}

// bound ends the look: when a source is silent, or when none is and the slowest has had its time.
func (l *Reader) bound() {
	last := time.NewTimer(answersWithin)
	defer last.Stop()
	first := time.NewTimer(silentAfter)
	defer first.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-last.C:
			l.cancel(fmt.Errorf("no answer within %s", answersWithin))
		case <-first.C:
			for _, q := range []*inquiry{l.hetzner, l.mgmt, l.api} {
				if q.silent() {
					l.cancel(q.silence())
				}
			}
		}
	}
}

// Context is for requests made beside the look: it ends with it, after two seconds where a source is silent.
func (l *Reader) Context() context.Context { return l.ctx }

// enough bounds what is asked beside the look once every source has been heard: twice the time that they took, which is
// long on a loaded machine.
func (l *Reader) enough() {
	took := time.Since(l.began)
	within := max(silentAfter, 2*took)
	time.AfterFunc(within-took, func() { l.cancel(fmt.Errorf("no answer within %s", within.Round(time.Second/10))) })
}

// Close ends the look.
func (l *Reader) Close() { l.cancel(context.Canceled) }

func (l *Reader) end() {
	for _, q := range []*inquiry{l.hetzner, l.mgmt, l.api} {
		q.settle()
	}
}

// inquiry is what is asked of one source: it ends after silentAfter unless the source has answered until then.
type inquiry struct {
	who string
	ctx context.Context

	cancel context.CancelCauseFunc
	timer  *time.Timer
	mu     sync.Mutex
	is     inquiryState
}

type inquiryState int

const (
	asked    inquiryState = iota // no answer yet
	answered                     // the source has begun to answer
	settled                      // nothing more is asked, or it refused
)

func ask(ctx context.Context, who string) *inquiry {
	q := &inquiry{who: who}
	q.ctx, q.cancel = context.WithCancelCause(ctx)
	q.timer = time.AfterFunc(silentAfter, func() { q.cancel(q.silence()) })
	return q
}

// silence is the error of a source that has not answered.
func (q *inquiry) silence() error {
	return fmt.Errorf("%s gave no answer within %s", q.who, silentAfter)
}

// answer notes that the source has begun to answer: it may take its time for the rest.
func (q *inquiry) answer() { q.become(answered) }

// settle notes that nothing more is asked of the source, or that it cannot be asked.
func (q *inquiry) settle() { q.become(settled) }

func (q *inquiry) become(is inquiryState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.is < is {
		q.timer.Stop()
		q.is = is
	}
}

// silent reports whether it was asked and has not answered.
func (q *inquiry) silent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.is == asked
}

// heard notes what came of the first question to a source.
func (q *inquiry) heard(err error) error {
	switch {
	case err == nil:
		q.answer()
	case q.ctx.Err() == nil:
		q.settle()
	}
	return q.why(err)
}

// why is an error of a question, or, where there was no time for an answer, that there was none.
func (q *inquiry) why(err error) error {
	if err != nil && q.ctx.Err() != nil {
		return context.Cause(q.ctx)
	}
	return err
}
