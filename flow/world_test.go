package flow_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
)

// A blueprint is a random graph as data: its steps, each of which may depend on
// those before it.
type blueprint []stepPrint

type stepPrint struct {
	Inputs, RerunAfter, After, OrderAfter []int
	Verified                              bool // has a Verify, so that its thing may vanish
	Mute                                  bool // its output does not tell what its thing was made from
	Sealed                                bool
	Exempt                                bool // from seals
}

func stepName(i int) string { return fmt.Sprintf("s%d", i) }

// needs are the steps that must be done before the i'th.
func (b blueprint) needs(i int) []int {
	return slices.Concat(b[i].Inputs, b[i].RerunAfter, b[i].After)
}

// before are the steps that the i'th depends on, directly or not.
func (b blueprint) before(i int) map[int]bool {
	all := map[int]bool{}
	for _, j := range b.needs(i) {
		all[j] = true
		maps.Copy(all, b.before(j))
	}
	return all
}

// sealing is what passed seals do to a blueprint.
type sealing struct {
	passed map[int]bool
	behind map[int]bool         // the steps that are passed over
	after  map[int]map[int]bool // exempt step → the passed seals that it comes after
}

func (b blueprint) seal(passed func(int) bool) sealing {
	s := sealing{map[int]bool{}, map[int]bool{}, map[int]map[int]bool{}}
	for i, p := range b {
		if !p.Sealed || !passed(i) {
			continue
		}
		s.passed[i] = true
		for j := range b.before(i) {
			switch {
			case !b[j].Exempt:
				s.behind[j] = true
			case s.after[j] == nil:
				s.after[j] = map[int]bool{i: true}
			default:
				s.after[j][i] = true
			}
		}
	}
	for j := range b.ahead(s) {
		clear(s.after[j])
	}
	return s
}

// ahead are the exempt steps that stay before passed seals, because one is ordered after them, with all before those.
func (b blueprint) ahead(s sealing) map[int]bool {
	all := map[int]bool{}
	var keep func(int)
	keep = func(j int) {
		if s.behind[j] || all[j] {
			return
		}
		all[j] = true
		for _, k := range slices.Concat(b.needs(j), b[j].OrderAfter) {
			keep(k)
		}
	}
	for i := range s.passed {
		for _, j := range b[i].OrderAfter {
			if b[j].Exempt {
				keep(j)
			}
		}
	}
	return all
}

// brings are the steps that a run that wants the i'th wants, too.
func (b blueprint) brings(i int, s sealing) map[int]bool {
	all := map[int]bool{}
	for _, j := range b.needs(i) {
		over := s.behind[i] || s.passed[i] // it needs no exempt step any more
		if over && s.after[j] != nil || s.after[i] != nil && s.behind[j] {
			continue
		}
		all[j] = true
		maps.Copy(all, b.brings(j, s))
	}
	return all
}

// waitsFor are the steps that must be done before the i'th begins, where they are wanted.
func (b blueprint) waitsFor(i int, s sealing) []int {
	if s.passed[i] { // all others before it are passed over, or come after it
		ahead := b.ahead(s)
		return slices.DeleteFunc(slices.Clone(b[i].OrderAfter), func(j int) bool { return !ahead[j] })
	}
	return slices.Concat(b.needs(i), b[i].OrderAfter, slices.Collect(maps.Keys(s.after[i])))
}

// keepsOutputs reports whether a run in which seals were passed needs no output of
// a step that is passed over: then the journal may be lost.
func (b blueprint) keepsOutputs() bool {
	all := b.seal(func(int) bool { return true })
	for _, p := range b {
		for _, j := range slices.Concat(p.Inputs, p.RerunAfter) {
			if all.behind[j] {
				return false
			}
		}
	}
	return true
}

// made is the output of a step.
type made struct {
	Step int    `json:"step"`
	ID   int    `json:"id"`             // of its object, never given twice
	From string `json:"from,omitempty"` // what it was made from
}

// object is something that a step created.
type object struct {
	ID   int
	From string
	Saw  map[int]made // outputs of what its step follows, when it ran
}

// world is the simulated systems in which steps have their effects: one object for each.
type world struct {
	objects map[int]object
	ids     int
	vanish  map[int]int  // how often each object was removed
	creates map[int]int  // how often each was made
	passed  map[int]bool // the sealed steps whose effect happened
	writes  int
}

func newWorld() *world {
	return &world{objects: map[int]object{}, vanish: map[int]int{}, creates: map[int]int{}, passed: map[int]bool{}}
}

// ensure makes a step's object what it should be, and makes it only if it is not there.
func (w *world) ensure(i int, from string, saw map[int]made) object {
	o, there := w.objects[i]
	if !there {
		w.ids++
		w.creates[i]++
		o.ID = w.ids
	}
	if !there || o.From != from || !maps.Equal(o.Saw, saw) {
		w.writes++
	}
	o.From, o.Saw = from, saw
	w.objects[i] = o
	return o
}

// origin is what an object is made from, in short.
func origin(spec int, inputs []made) string {
	h := fnv.New64a()
	fmt.Fprint(h, spec, inputs)
	return fmt.Sprintf("%d-%x", spec, h.Sum64())
}

// The errors of a simulated run.
var (
	errDead   = errors.New("the process is dead")
	errFails  = errors.New("the system refuses")
	errSilent = errors.New("the system does not answer")
)

// graph builds the flow of a blueprint for one run over the model.
func (m *model) graph() *flow.Graph {
	g := flow.New("random")
	handles := make([]*flow.Step[made], len(m.print))
	for i, p := range m.print {
		pick := func(steps []int) (nodes []flow.Node) {
			for _, j := range steps {
				nodes = append(nodes, handles[j])
			}
			return nodes
		}
		task := flow.Task[made]{
			Name:           stepName(i),
			Run:            m.work(i, handles),
			After:          pick(p.After),
			OrderAfter:     pick(p.OrderAfter),
			RerunAfter:     pick(p.RerunAfter),
			Spec:           m.spec[i],
			Seal:           p.Sealed,
			ExemptFromSeal: p.Exempt,
		}
		if p.Verified {
			task.Verify = func(_ context.Context, out made) flow.Verdict { return m.verify(i, out) }
		}
		if p.Sealed {
			task.ResumeWhen = func() (bool, error) { return m.world.passed[i], nil }
		}
		handles[i] = flow.Add(g, task)
	}
	return g
}

// work is the function of the i'th step, with as many typed arguments as it has inputs.
func (m *model) work(i int, all []*flow.Step[made]) flow.Work[made] {
	in := m.print[i].Inputs
	do := func(ctx context.Context, inputs ...made) (made, error) { return m.do(ctx, i, inputs) }
	switch len(in) {
	case 0:
		return flow.Do(func(ctx context.Context, _ flow.Say) (made, error) { return do(ctx) })
	case 1:
		return flow.With1(func(ctx context.Context, _ flow.Say, a made) (made, error) { return do(ctx, a) }, all[in[0]])
	case 2:
		return flow.With2(func(ctx context.Context, _ flow.Say, a, b made) (made, error) {
			return do(ctx, a, b)
		}, all[in[0]], all[in[1]])
	case 3:
		return flow.With3(func(ctx context.Context, _ flow.Say, a, b, c made) (made, error) {
			return do(ctx, a, b, c)
		}, all[in[0]], all[in[1]], all[in[2]])
	default:
		return flow.With4(func(ctx context.Context, _ flow.Say, a, b, c, d made) (made, error) {
			return do(ctx, a, b, c, d)
		}, all[in[0]], all[in[1]], all[in[2]], all[in[3]])
	}
}
