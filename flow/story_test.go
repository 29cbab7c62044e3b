package flow_test

import (
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// The moments of a save at which the stories below are struck.
const (
	inTheWrite     = 4  // half of the file is written
	beforeTheFlush = 10 // the file has its name, and the folder is not flushed
	aSave          = 11 // all of them
	aWork          = 2  // those of a step's work
	beforeTheSync  = 4  // of an appended change: it is written, and not flushed
)

// A record that a killed run renamed into place, or appended, and did not flush is read by the
// runs after it, until a power failure takes it back. Then the record before it
// counts, whichever of the two says done, and nothing is made twice for it.
func TestAnUnflushedRecordGoesWithThePower(t *testing.T) {
	calmly := story{}
	powerless := func(s story, names bool) story {
		s.Trouble = trouble{Kind: power, At: inTheWrite, Names: names}
		if names {
			s.Trouble.Files = 1
		}
		return s
	}
	changed := story{Spec: map[int]int{0: 2}, Trouble: trouble{Kind: kill, At: beforeTheFlush}}
	changedBack := story{Spec: map[int]int{0: 0}, Trouble: trouble{Kind: fault, At: 1}}
	unflushedDone := story{Trouble: trouble{Kind: kill, At: aSave + aWork + beforeTheSync}}
	gone := story{Vanish: []int{0}}
	for name, c := range map[string]struct {
		stories []story
		states  []flow.State // of the step, after each
		made    int
	}{
		"started": {
			[]story{calmly, changed, changedBack, powerless(gone, false)},
			[]flow.State{flow.StateDone, flow.StateStarted, flow.StateStarted, flow.StateDone}, 2,
		},
		"started, and what was not flushed outlives it": {
			[]story{calmly, changed, changedBack, powerless(gone, true)},
			[]flow.State{flow.StateDone, flow.StateStarted, flow.StateStarted, flow.StateStarted}, 2,
		},
		"done": {
			[]story{unflushedDone, powerless(changed, false)},
			[]flow.State{flow.StateDone, flow.StateStarted}, 1,
		},
		"done, and what was not flushed outlives it": {
			[]story{unflushedDone, powerless(changed, true)},
			[]flow.State{flow.StateDone, flow.StateDone}, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(blueprint{{Verified: true, Mute: true}}, new(counts))
			for i, s := range c.stories {
				_ = m.next(s, 1) // judged inside
				if rec := mustLoad(t, flow.FolderOn(simDir, m.disk)).Steps[stepName(0)]; rec.State != c.states[i] {
					t.Errorf("after run %d the step is recorded as %q, want %q", i+1, rec.State, c.states[i])
				}
			}
			m.finish(1)
			for _, wrong := range m.wrong {
				t.Error(wrong)
			}
			if n := m.world.creates[0]; n != c.made {
				t.Errorf("its thing was made %d times, want %d", n, c.made)
			}
		})
	}
}
