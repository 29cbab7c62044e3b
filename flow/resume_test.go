package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

var errDied = errors.New("the power is gone")

// dyingJournal ends at its nth save, as the process might: nothing after it is
// written. With late, the nth save itself still reaches the disk.
type dyingJournal struct {
	flow.Journal
	at   int
	late bool
	mu   sync.Mutex
	n    int
}

func (j *dyingJournal) Save(ctx context.Context, s flow.Snapshot) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.n++
	if j.n < j.at || j.late && j.n == j.at {
		if err := j.Journal.Save(ctx, s); err != nil {
			return err
		}
	}
	if j.n >= j.at {
		return errDied
	}
	return nil
}

// diamond is a → (b, c) → d. Each step is an ensure: it makes its thing in the world unless it exists there.
func diamond(world *sync.Map, made *ledger) *flow.Graph {
	ensure := func(name string) func(context.Context, flow.Say) (thing, error) {
		return func(context.Context, flow.Say) (thing, error) {
			if _, found := world.LoadOrStore(name, true); !found {
				made.add(name)
			}
			return thing{Name: name}, nil
		}
	}
	there := func(_ context.Context, t thing) flow.Verdict {
		if _, ok := world.Load(t.Name); !ok {
			return flow.Gone("%s is not there", t.Name)
		}
		return flow.Holds()
	}
	g := flow.New("diamond")
	on := func(name string) func(context.Context, flow.Say, thing) (thing, error) {
		return func(ctx context.Context, say flow.Say, _ thing) (thing, error) { return ensure(name)(ctx, say) }
	}
	a := flow.Add(g, flow.Task[thing]{Name: "a", Run: flow.Do(ensure("a")), Verify: there})
	b := flow.Add(g, flow.Task[thing]{Name: "b", Run: flow.With1(on("b"), a), Verify: there})
	c := flow.Add(g, flow.Task[thing]{Name: "c", Run: flow.With1(on("c"), a), Verify: there})
	flow.Add(g, flow.Task[thing]{
		Name: "d",
		Run: flow.With2(func(ctx context.Context, say flow.Say, _, _ thing) (thing, error) {
			return ensure("d")(ctx, say)
		}, b, c),
		Verify: there,
	})
	return g
}

// Killed at any write of the journal, before it or after it, the next run
// finishes, and nothing was made twice.
func TestResumeAfterDeathAtAnyPoint(t *testing.T) {
	const saves = 8 // two a step
	for at := 1; at <= saves; at++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("save %d late %v", at, late), func(t *testing.T) {
				var world sync.Map
				var made ledger
				g, j := diamond(&world, &made), flow.Folder(t.TempDir())
				dying := &dyingJournal{Journal: j, at: at, late: late}
				if _, err := g.Run(t.Context(), flow.Options{Journal: dying}); !errors.Is(err, errDied) {
					t.Fatalf("error is %v", err)
				}
				mustRun(t, g, flow.Options{Journal: j})
				wantLines(t, made.sorted(), "a", "b", "c", "d")
				for name, rec := range mustLoad(t, j).Steps {
					if rec.State != flow.StateDone {
						t.Errorf("step %s is %s", name, rec.State)
					}
				}
			})
		}
	}
}

func mustLoad(t *testing.T, j flow.Journal) flow.Snapshot {
	t.Helper()
	s, err := j.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Without its "started" on the disk a step does not begin.
func TestNoWorkWithoutItsStartedRecord(t *testing.T) {
	var world sync.Map
	var made ledger
	j := &dyingJournal{Journal: flow.Memory(), at: 1}
	if _, err := diamond(&world, &made).Run(t.Context(), flow.Options{Journal: j}); err == nil {
		t.Error("a run without a journal succeeded")
	}
	wantLines(t, made.take())
}

func TestTheStartedRecordPrecedesTheWorkAndKeepsTheOutput(t *testing.T) {
	j := flow.Memory()
	var during flow.Record
	spec := 1
	build := func() *flow.Graph {
		g := flow.New("test")
		flow.Add(g, flow.Task[thing]{
			Name: "a",
			Run: flow.Do(func(ctx context.Context, _ flow.Say) (thing, error) {
				s, err := j.Load(ctx)
				during = s.Steps["a"]
				return thing{Name: "a", Size: spec}, err
			}),
			Spec: spec,
		})
		return g
	}
	mustRun(t, build(), flow.Options{Journal: j})
	if during.State != flow.StateStarted || during.Output != nil {
		t.Errorf("during the first work the record is %+v", during)
	}
	spec = 2
	mustRun(t, build(), flow.Options{Journal: j})
	var earlier thing
	if err := json.Unmarshal(during.Output, &earlier); err != nil || earlier.Size != 1 ||
		during.State != flow.StateStarted {
		t.Errorf("during the second work the record is %+v, with output %+v", during, earlier)
	}
	if string(during.Spec) != "2" {
		t.Errorf("the spec at work is %s", during.Spec)
	}
}

// Going back to the configuration of an older output does not make it true:
// the step was at work in between.
func TestAStartedStepRunsAgainWhateverItsSpec(t *testing.T) {
	j := flow.Memory()
	var l ledger
	build := func(spec int) *flow.Graph {
		g := flow.New("test")
		flow.Add(g, flow.Task[thing]{Name: "a", Run: flow.Do(l.make("a")), Spec: spec})
		return g
	}
	mustRun(t, build(1), flow.Options{Journal: j})
	if _, err := build(2).Run(t.Context(), flow.Options{Journal: &dyingJournal{Journal: j, at: 2}}); err == nil {
		t.Fatal("the second run should die")
	}
	l.take()
	report := mustRun(t, build(1), flow.Options{Journal: j})
	wantLines(t, l.take(), "a")
	if s, _ := report.Step("a"); s.Reason != "its last run was killed while it was running" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

func TestResumeAfterCancellation(t *testing.T) {
	j := flow.Folder(t.TempDir())
	var l ledger
	cancelled, cancel := context.WithCancel(t.Context())
	patient := false
	g := flow.New("test")
	a := flow.Add(g, l.task("a"))
	b := flow.Add(g, flow.Task[thing]{
		Name: "b",
		Run: flow.With1(func(ctx context.Context, _ flow.Say, in thing) (thing, error) {
			if !patient {
				cancel()
				<-ctx.Done()
				return thing{}, ctx.Err()
			}
			l.add("b")
			return in, nil
		}, a),
	})
	flow.Add(g, flow.Task[thing]{Name: "c", Run: flow.With1(l.grow("c"), b)})
	if _, err := g.Run(cancelled, flow.Options{Journal: j}); !errors.Is(err, flow.ErrInterrupted) {
		t.Fatalf("error is %v", err)
	}
	wantLines(t, l.take(), "a")
	patient = true
	report := mustRun(t, g, flow.Options{Journal: j})
	wantLines(t, l.take(), "b", "c")
	if s, _ := report.Step("b"); s.Reason != "it was interrupted" {
		t.Errorf("the reason is %q", s.Reason)
	}
}

// obedientJournal writes nothing in a context that is over.
type obedientJournal struct{ flow.Journal }

func (j obedientJournal) Save(ctx context.Context, s flow.Snapshot) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.Journal.Save(ctx, s)
}

func TestCancellationDoesNotReachTheJournal(t *testing.T) {
	j := flow.Memory()
	for _, end := range []error{nil, context.Canceled} {
		ctx, cancel := context.WithCancel(t.Context())
		g := flow.New("test")
		flow.Add(g, flow.Task[int]{
			Name: "a",
			Run:  flow.Do(func(context.Context, flow.Say) (int, error) { cancel(); return 1, end }),
			Spec: end == nil,
		})
		if _, err := g.Run(ctx, flow.Options{Journal: obedientJournal{j}}); (err == nil) != (end == nil) {
			t.Errorf("error is %v", err)
		}
		want := flow.StateDone
		if end != nil {
			want = flow.StateInterrupted
		}
		if got := mustLoad(t, j).Steps["a"].State; got != want {
			t.Errorf("the record says %s, want %s", got, want)
		}
	}
}

// Records of steps that the graph does not have (any more) are kept.
func TestUnknownRecordsAreKept(t *testing.T) {
	j := flow.Memory()
	var l ledger
	g := flow.New("test")
	flow.Add(g, l.task("old"))
	mustRun(t, g, flow.Options{Journal: j})
	g = flow.New("test")
	flow.Add(g, l.task("new"))
	mustRun(t, g, flow.Options{Journal: j})
	if s := mustLoad(t, j); len(s.Steps) != 2 || s.Steps["old"].State != flow.StateDone {
		t.Errorf("steps are %+v", s.Steps)
	}
}

func TestAJournalOfAnotherGraphIsRefused(t *testing.T) {
	j := flow.Memory()
	var l ledger
	g := flow.New("one")
	flow.Add(g, l.task("a"))
	mustRun(t, g, flow.Options{Journal: j})
	l.take()
	g = flow.New("two")
	flow.Add(g, l.task("a"))
	if _, err := g.Run(t.Context(), flow.Options{Journal: j}); err == nil {
		t.Error("the journal of another graph was taken")
	}
	wantLines(t, l.take())
}
