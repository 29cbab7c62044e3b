package flow_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/flow"
)

// simDir is the journal's folder on a simulated disk.
const simDir = "state"

// casesEach is how many random cases each of the groups of a random test has,
// unless -rapid.checks or RAPID_CHECKS says otherwise.
const casesEach = 2500

// patience is longer than a busy machine keeps a step from going on: what a run leaves behind continues without it,
// which the model does not follow.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.checks" })
	if !given {
		if err := flag.Set("rapid.checks", fmt.Sprint(casesEach)); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// story is what a run is like: what changed since the last one, what is wrong with the simulated systems during it, and
// the faults in it.
type story struct {
	Spec    map[int]int  // step → its new spec
	Vanish  []int        // objects that are removed before it
	Forget  bool         // the journal is lost before it
	Targets []int        // none: all
	Silent  map[int]bool // steps whose things cannot be asked about
	Fails   map[int]when // steps that fail before their effect, or after it
	Trouble trouble
}

// trouble strikes at the nth moment: of a save or of a step's work.
type trouble struct {
	Kind  kind
	At    int
	Names bool    // power: the names outlive it, though their folder was not flushed
	Files float64 // power: how much of the files does, though they were not flushed
}

type kind string

const (
	calm   kind = ""
	kill   kind = "kill"   // the process is killed
	power  kind = "power"  // the machine loses power, and with it what is not on the disk
	fault  kind = "fault"  // one call fails
	cancel kind = "cancel" // the run's context is cancelled
)

// often is true once in n.
func often(t *rapid.T, n int, what string) bool {
	return rapid.Uint64().Draw(t, what)%uint64(n) == uint64(n-1)
}

func drawBlueprint(t *rapid.T) blueprint {
	print := make(blueprint, rapid.IntRange(1, 6).Draw(t, "steps"))
	for i := range print {
		p := &print[i]
		for j := range i {
			switch rapid.SampledFrom([]string{"", "input", "follows", "after", "yields", ""}).Draw(t,
				fmt.Sprintf("s%d on s%d", i, j)) {
			case "input":
				if len(p.Inputs) < 4 {
					p.Inputs = append(p.Inputs, j)
				}
			case "follows":
				p.RerunAfter = append(p.RerunAfter, j)
			case "after":
				p.After = append(p.After, j)
			case "yields":
				p.OrderAfter = append(p.OrderAfter, j)
			}
		}
		p.Verified = !often(t, 3, "unverified")
		p.Mute = often(t, 4, "mute")
		exempt := func(j int) bool { return print[j].Exempt }
		if p.Sealed = often(t, 4, "sealed"); p.Sealed { // a seal takes no output of a step that is exempt from it
			for _, j := range slices.Concat(p.Inputs, p.RerunAfter) {
				if exempt(j) {
					p.After = append(p.After, j)
				}
			}
			p.Inputs, p.RerunAfter = slices.DeleteFunc(p.Inputs, exempt), slices.DeleteFunc(p.RerunAfter, exempt)
			continue
		}
		sound := !slices.ContainsFunc(slices.Concat(p.Inputs, p.RerunAfter), func(j int) bool { return !exempt(j) })
		p.Exempt = sound && rapid.Bool().Draw(t, "exempt")
	}
	return print
}

func drawStory(t *rapid.T, print blueprint) story {
	s := story{Spec: map[int]int{}, Silent: map[int]bool{}, Fails: map[int]when{}}
	for i, p := range print {
		if often(t, 5, "changed") {
			s.Spec[i] = rapid.IntRange(0, 2).Draw(t, "spec")
		}
		if p.Verified && often(t, 6, "vanishes") {
			s.Vanish = append(s.Vanish, i)
		}
		if often(t, 8, "silent") {
			s.Silent[i] = true
		}
		if often(t, 12, "fails") {
			s.Fails[i] = rapid.SampledFrom([]when{before, after}).Draw(t, "fails")
		}
		if often(t, 8, "wanted") {
			s.Targets = append(s.Targets, i)
		}
	}
	// A lost journal loses what steps after a seal would take from before it.
	s.Forget = often(t, 10, "forget") && print.keepsOutputs()
	s.Trouble.Kind = []kind{calm, kill, kill, power, power, fault, cancel}[rapid.Uint64().Draw(t, "trouble")%7]
	if s.Trouble.Kind != calm {
		// Of a step: 5 of each of its two changes, 2 of its work; of a run: 11 of its first change, and of its end.
		const each, once = 12, 17
		s.Trouble.At = 1 + int(rapid.Uint64().Draw(t, "at")%uint64(each*len(print)+once))
	}
	if s.Trouble.Kind == power {
		s.Trouble.Names = rapid.Bool().Draw(t, "names")
		s.Trouble.Files = rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "files")
	}
	return s
}

// next makes a run of a story: changes the simulated systems, runs the graph, and checks what can be checked after any
// run.
func (m *model) next(s story, parallel int) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m.prepare(&s)
	m.run = &simRun{
		story: s, id: fmt.Sprint(m.counted.runs.Add(1)), cancel: stop,
		sealing: m.print.seal(m.passed), wanted: map[int]bool{}, begun: map[int]bool{}, ended: map[int]bool{},
		answers: map[int]flow.Answer{}, inside: map[int]bool{},
	}
	opt := flow.Options{Journal: flow.FolderOn(simDir, m.disk), Run: m.run.id, Parallel: parallel, Observe: m.observe,
		Grace: patience}
	for i := range m.print {
		m.run.wanted[i] = len(s.Targets) == 0
	}
	for _, i := range s.Targets {
		opt.Targets = append(opt.Targets, stepName(i))
		m.run.wanted[i] = true
		maps.Copy(m.run.wanted, m.print.brings(i, m.run.sealing))
	}
	_, err := m.graph().Run(ctx, opt)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count()
	m.judge(err)
	if m.run.over.Load() && s.Trouble.Kind == power {
		m.powerFails()
	}
	m.disk.moment = func(string, when) error { return nil }
	snapshot, loadErr := flow.FolderOn(simDir, m.disk).Load(context.Background())
	m.disk.moment = m.moment
	if loadErr != nil {
		m.notRight("the journal does not load: %v", loadErr)
	}
	m.reconcile(snapshot)
	return err
}

// prepare changes configuration and simulated systems as the story says.
func (m *model) prepare(s *story) {
	for i, spec := range s.Spec {
		m.spec[i] = spec
	}
	for _, i := range s.Vanish {
		if _, there := m.world.objects[i]; there && !(m.print[i].Sealed && m.steps[i].is == done) {
			delete(m.world.objects, i)
			m.world.vanish[i]++
		}
	}
	if s.Forget {
		if len(m.print.seal(m.passed).passed) > 0 {
			m.counted.forgotten.Add(1)
		}
		m.disk.names, m.disk.durable = map[string]*inode{}, map[string]*inode{}
		m.steps = make([]belief, len(m.print))
	}
}

// judge checks a run's error.
func (m *model) judge(err error) {
	r := m.run
	if r.over.Load() {
		return
	}
	var sealed *flow.SealedError
	for _, i := range r.Targets {
		if r.behind[i] && (!errors.As(err, &sealed) || len(r.begun) > 0) {
			m.notRight("s%d is wanted and lies behind a seal; the error is %v", i, err)
		}
	}
	excused := r.struck || len(r.Fails) > 0 || errors.As(err, &sealed)
	for i, answer := range r.answers {
		var silent *flow.UnverifiableError
		if answer == flow.AnswerUnknown {
			excused = true
			if !errors.As(err, &silent) && !(r.struck && r.Trouble.Kind == cancel) {
				m.notRight("s%d could not be asked about, and the error is %v", i, err)
			}
		}
	}
	if err != nil && !excused {
		m.notRight("nothing is wrong, and the error is %v", err)
	}
	for i := range m.print {
		if err == nil && r.wanted[i] && !r.behind[i] && !r.ended[i] {
			m.notRight("s%d is wanted and not done, and there is no error", i)
		}
	}
}

// finish brings everything to done without trouble, and checks that it is.
func (m *model) finish(parallel int) {
	was := slices.Clone(m.steps)
	if err := m.next(story{}, parallel); err != nil {
		m.notRight("the last run fails: %v", err)
	}
	for i, p := range m.print {
		if m.run.behind[i] {
			continue
		}
		b, o := m.steps[i], m.world.objects[i]
		inputs := make([]made, len(p.Inputs))
		for k, j := range p.Inputs {
			inputs[k] = m.steps[j].out
		}
		saw := map[int]made{}
		for _, j := range p.RerunAfter {
			saw[j] = m.steps[j].out
		}
		asToday := o.From == origin(m.spec[i], inputs) && maps.Equal(o.Saw, saw)
		if b.is != done || o.ID == 0 || o.ID != b.out.ID || !asToday && !(p.Sealed && was[i].is == done) {
			m.notRight("at the end s%d is %q with %+v, there is %+v, the spec is %d and the inputs %+v", i, b.is, b.out, o,
				m.spec[i], inputs)
		}
	}
	for i, n := range m.world.creates {
		if n > 1+m.world.vanish[i] {
			m.notRight("s%d was made %d times and vanished %d times", i, n, m.world.vanish[i])
		}
	}
	writes := m.world.writes
	if err := m.next(story{}, parallel); err != nil || len(m.run.begun) > 0 || m.world.writes != writes {
		m.notRight("a run with nothing to do ran %v: %v", slices.Collect(maps.Keys(m.run.begun)), err)
	}
}

// randomly is the property: whatever happened in run after run, the steps ran
// as they may, and in the end everything is as the spec says.
func randomly(c *counts, parallel int) func(*rapid.T) {
	return func(t *rapid.T) {
		print := drawBlueprint(t)
		m := newModel(print, c)
		var stories []story
		for range rapid.IntRange(1, 4).Draw(t, "runs") {
			stories = append(stories, drawStory(t, print))
			_ = m.next(stories[len(stories)-1], parallel) // judged inside
		}
		m.finish(parallel)
		if len(m.wrong) == 0 {
			return
		}
		for i, p := range print {
			t.Logf("s%d: %+v", i, p)
		}
		for _, s := range stories {
			t.Logf("then: %+v", s)
		}
		t.Fatalf("%d things are wrong, first:\n%s", len(m.wrong), m.wrong[0])
	}
}

// TestRandomRuns is 10,000 cases in which a case is the same each time that its
// seed is, because one step runs at a time.
func TestRandomRuns(t *testing.T) {
	var c counts
	t.Run("groups", func(t *testing.T) {
		for group := range 4 {
			t.Run(fmt.Sprint(group), func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, randomly(&c, 1))
			})
		}
	})
	c.enough(t)
}

// TestRandomRunsAtOnce is the same with steps at the same time.
func TestRandomRunsAtOnce(t *testing.T) {
	var c counts
	rapid.Check(t, randomly(&c, 0))
	c.enough(t)
}

// enough makes sure that the random cases are not all the same dull one.
func (c *counts) enough(t *testing.T) {
	if t.Failed() {
		return
	}
	t.Logf("%d runs on %d processors: %d effects, %d steps reused, %d times gone, %d could not ask, %d refused by a "+
		"seal, %d behind one, %d steps exempt from one, %d journals lost after one; %d killed, %d power failures, %d "+
		"faults, %d cancelled", c.runs.Load(), runtime.NumCPU(), c.effects.Load(), c.reused.Load(), c.gone.Load(),
		c.unknowns.Load(), c.refused.Load(), c.seals.Load(), c.exempt.Load(), c.forgotten.Load(), c.killed.Load(),
		c.power.Load(), c.faults.Load(), c.cancels.Load())
	each := c.runs.Load() / 500
	for what, n := range map[string]int64{
		"reused": c.reused.Load(), "gone": c.gone.Load(), "unknown": c.unknowns.Load(), "refused": c.refused.Load(),
		"sealed": c.seals.Load(), "exempt": c.exempt.Load(), "journal lost after a seal": c.forgotten.Load(),
		"killed": c.killed.Load(), "power": c.power.Load(), "faults": c.faults.Load(), "cancelled": c.cancels.Load(),
	} {
		if n < each {
			t.Errorf("of %d runs only %d met %q: the cases are too dull", c.runs.Load(), n, what)
		}
	}
}

// count adds what the run was like.
func (m *model) count() {
	r, c := m.run, m.counted
	if len(r.behind) > 0 {
		c.seals.Add(1)
	}
	if slices.ContainsFunc(r.Targets, func(i int) bool { return r.behind[i] }) {
		c.refused.Add(1)
	}
	if !r.struck {
		return
	}
	map[kind]func(){
		kill: func() { c.killed.Add(1) }, power: func() { c.power.Add(1) },
		fault: func() { c.faults.Add(1) }, cancel: func() { c.cancels.Add(1) },
	}[r.Trouble.Kind]()
}

// TestPowerFailureAfterAKilledRename: a run is killed after it appended that a step is done, and the next one after it
// renamed a new journal into place, neither flushed. A power failure then brings the true record of the first run back.
func TestPowerFailureAfterAKilledRename(t *testing.T) {
	var c counts
	m := newModel(blueprint{
		{}, {Inputs: []int{0}, Verified: true, Mute: true}, {RerunAfter: []int{0}, Verified: true},
	}, &c)
	for _, s := range []story{
		{Spec: map[int]int{1: 2}, Trouble: trouble{Kind: kill, At: 16}},
		{Spec: map[int]int{0: 2}, Trouble: trouble{Kind: kill, At: 9}},
		{Targets: []int{1}, Trouble: trouble{Kind: power, At: 1, Files: 1}},
	} {
		_ = m.next(s, 1) // judged inside
	}
	m.finish(1)
	if len(m.wrong) > 0 {
		t.Errorf("%q", m.wrong)
	}
}
