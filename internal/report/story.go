package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// story is several runs on one clock, which stops between them.
type story struct {
	runs  []runs.Run
	graph []flow.Info
	Work  time.Duration    // of all runs together
	From  []time.Duration  // where each run begins on the clock
	tries map[string][]try // by step, in their order
	order []string         // the steps, in the order in which they were first heard of
}

// try is an attempt at a step, or a look at what it made before.
type try struct {
	run      int
	from, to time.Duration
	state    State
	said     []saying
	err      string
}

// saying is a sentence of a step, which held until it said another.
type saying struct {
	from, to time.Duration
	text     string
}

func (t try) took() time.Duration { return t.to - t.from }

func New(runs []runs.Run, graph []flow.Info) *story {
	s := &story{runs: runs, graph: graph, tries: map[string][]try{}}
	for i, r := range runs {
		s.From = append(s.From, s.Work)
		s.Work += max(0, r.Ended().Sub(r.Began())) // the clock may have been set back
		s.read(i)
	}
	return s
}

// at is a time of a run on the story's clock.
func (s *story) at(run int, t time.Time) time.Duration {
	return s.From[run] + min(max(0, t.Sub(s.runs[run].Began())), s.Work-s.From[run])
}

// read takes a run's events apart.
func (s *story) read(run int) {
	open := map[string]*try{}
	closeAs := func(e flow.Event, state State) {
		t := open[e.Step]
		if t == nil {
			t = &try{run: run, from: s.at(run, e.Time)}
		}
		delete(open, e.Step)
		t.state, t.err = state, e.Err
		t.end(s.at(run, e.Time))
		s.tries[e.Step] = append(s.tries[e.Step], *t)
	}
	for _, e := range s.runs[run].Events {
		if e.Step != "" && !slices.Contains(s.order, e.Step) {
			s.order = append(s.order, e.Step)
		}
		switch e.Kind {
		case flow.StepVerifying:
			open[e.Step] = &try{run: run, from: s.at(run, e.Time)}
		case flow.StepStarted:
			if open[e.Step] == nil {
				open[e.Step] = &try{run: run, from: s.at(run, e.Time)}
			}
			open[e.Step].say(s.at(run, e.Time), e.Message)
		case flow.StepProgress:
			if t := open[e.Step]; t != nil {
				t.say(s.at(run, e.Time), e.Message)
			}
		case flow.StepDone:
			closeAs(e, Done)
		case flow.StepReused:
			closeAs(e, Reused)
		case flow.StepSkipped:
			closeAs(flow.Event{Time: e.Time, Step: e.Step}, Skipped)
		case flow.StepFailed:
			closeAs(e, Failed)
		case flow.StepInterrupted:
			closeAs(e, Interrupted)
		}
	}
	for _, step := range slices.Sorted(maps.Keys(open)) {
		closeAs(flow.Event{Time: s.runs[run].Ended(), Step: step}, Killed)
	}
}

func (t *try) say(at time.Duration, text string) {
	if n := len(t.said); n > 0 {
		if t.said[n-1].text == text {
			return
		}
		t.said[n-1].to = at
	}
	t.said = append(t.said, saying{from: at, text: text})
}

func (t *try) end(at time.Duration) {
	t.to = max(at, t.from)
	if n := len(t.said); n > 0 {
		t.said[n-1].to = t.to
	}
}

// outcome is how a step came out of the story: what was done and then reused was done.
func outcome(tries []try) State {
	state := Skipped
	for _, t := range tries {
		if t.state != Reused || state != Done {
			state = t.state
		}
	}
	return state
}

// CriticalSteps are the steps that each waited for the one before, back from the one that ended last.
func (s *story) CriticalSteps() []string {
	ended := map[string]time.Duration{}
	for step, tries := range s.tries {
		for _, t := range tries {
			if t.state != Reused && t.state != Skipped {
				ended[step] = max(ended[step], t.to)
			}
		}
	}
	behind := map[string][]string{}
	for _, info := range s.graph {
		for _, l := range info.Behind {
			behind[info.Name] = append(behind[info.Name], l.Step)
		}
	}
	latest := func(steps []string) (last string) {
		for _, step := range steps {
			if end, ok := ended[step]; ok && (last == "" || end > ended[last]) {
				last = step
			}
		}
		return last
	}
	var inGraph []string
	for _, info := range s.graph {
		inGraph = append(inGraph, info.Name)
	}
	var path []string
	for step := latest(inGraph); step != ""; step = latest(behind[step]) {
		path = append(path, step)
	}
	slices.Reverse(path)
	return path
}

// took is how long a step was at work, over all its tries.
func (s *story) took(step string) (sum time.Duration) {
	for _, t := range s.tries[step] {
		if t.state != Reused && t.state != Skipped {
			sum += t.took()
		}
	}
	return sum
}

// waits are the sentences that held longest, those that are alike in one step together.
func (s *story) waits() []Wait {
	const most, least = 10, time.Second
	type wait struct {
		step, text string
		held       time.Duration
	}
	var all []wait
	for _, step := range s.order {
		for _, t := range s.tries[step] {
			for _, said := range t.said[min(1, len(t.said)):] { // the first says why it runs
				i := slices.IndexFunc(all, func(w wait) bool { return w.step == step && w.text == said.text })
				if i < 0 {
					i = len(all)
					all = append(all, wait{step: step, text: said.text})
				}
				all[i].held += said.to - said.from
			}
		}
	}
	slices.SortStableFunc(all, func(a, b wait) int { return cmp.Compare(b.held, a.held) })
	var longest []Wait
	for _, w := range all[:min(most, len(all))] {
		if w.held >= least {
			longest = append(longest, Wait{Step: w.step, For: text.Elapsed(w.held), Text: w.text})
		}
	}
	return longest
}

// incident is something that went wrong, on the story's clock.
type incident struct {
	at time.Duration
	Trouble
}

// Troubles are what went wrong, in its order.
func (s *story) Troubles() []Trouble {
	var all []incident
	for i, r := range s.runs {
		for _, step := range s.order {
			for _, t := range s.tries[step] {
				if t.run == i {
					all = append(all, t.incidents(step)...)
				}
			}
		}
		all = append(all, s.failedCalls(i)...)
		in := incident{s.at(i, r.Ended()), Trouble{Text: s.atWork(i)}}
		switch end, why := r.Outcome(); end {
		case runs.Killed:
			in.State, in.What = Killed, "run killed"
			in.Text = cmp.Or(why, "it wrote no end: it was killed, or is still at work") + "; " + s.atWork(i)
		case runs.Interrupted:
			in.State, in.What = Interrupted, "run interrupted"
		case runs.Failed:
			if _, told := r.Last(flow.StepFailed); told {
				continue
			}
			in.State, in.What, in.Text = Failed, "run failed", why+"; "+s.atWork(i)
		default:
			continue
		}
		in.Run = i + 1
		all = append(all, in)
	}
	slices.SortStableFunc(all, func(a, b incident) int { return cmp.Compare(a.at, b.at) })
	var out []Trouble
	for _, in := range all {
		in.At = text.Elapsed(in.at)
		out = append(out, in.Trouble)
	}
	return out
}

// incidents are a try's: its failure, and each trouble that it waited for, in the sentence that held longest.
func (t try) incidents(step string) (all []incident) {
	type waited struct {
		from, held time.Duration
		longest    saying
	}
	waits := map[string]*waited{}
	for _, said := range t.said {
		word := why.TroubleIn(said.text)
		if word == "" {
			continue
		}
		w := waits[word]
		if w == nil {
			w = &waited{from: said.from, longest: said}
			waits[word] = w
		}
		w.held += said.to - said.from
		if said.to-said.from > w.longest.to-w.longest.from {
			w.longest = said
		}
	}
	for _, word := range slices.Sorted(maps.Keys(waits)) {
		w := waits[word]
		text := fmt.Sprintf("%s (it named this for %s)", w.longest.text, text.Elapsed(w.held))
		all = append(all, incident{w.from, Trouble{Run: t.run + 1, State: Interrupted, What: step + " waited",
			Text: text}})
	}
	if t.state == Failed {
		all = append(all, incident{t.to, Trouble{Run: t.run + 1, State: Failed, What: step + " failed",
			Text: t.err}})
	}
	return all
}

// failedCalls are the calls of a run that were refused or not answered, those that are alike together.
func (s *story) failedCalls(run int) (all []incident) {
	times := map[string]int{}
	for _, l := range s.runs[run].Effects {
		text := l.Name() + ": " + l.Error
		if l.Phase != effect.Failed {
			continue
		}
		if times[text]++; times[text] == 1 {
			all = append(all, incident{s.at(run, l.Time), Trouble{Run: run + 1, State: Interrupted,
				What: "call failed", Text: text}})
		}
	}
	for i, in := range all {
		if n := times[in.Text]; n > 1 {
			all[i].Text += fmt.Sprintf(" (%d times)", n)
		}
	}
	return all
}

// notes are the messages of the runs that belong to no step, each once.
func (s *story) notes() (notes []string) {
	for _, r := range s.runs {
		for _, e := range r.Events {
			if e.Kind == runs.NoteEvent && !slices.Contains(notes, e.Message) {
				notes = append(notes, e.Message)
			}
		}
	}
	return notes
}

// atWork says which steps were at work when a run ended.
func (s *story) atWork(run int) string {
	var names []string
	for _, step := range s.order {
		if slices.ContainsFunc(s.tries[step], func(t try) bool {
			return t.run == run && (t.state == Killed || t.state == Interrupted)
		}) {
			names = append(names, step)
		}
	}
	if len(names) == 0 {
		return "no step was at work"
	}
	return "at work: " + strings.Join(names, ", ")
}
