package flow

import (
	"context"
	"slices"
)

// schedule starts each step as soon as all that it depends on is done, and returns when nothing runs any more. Of the
// steps that can start, the first in the order of wanted does.
func (r *run) schedule(ctx context.Context, wanted []*node) map[*node]result {
	q := newQueue(wanted, r.seals)
	results := make(map[*node]result, len(wanted))
	ended := make(chan result)
	running := 0
	for {
		for len(q.ready) > 0 && (r.opt.Parallel <= 0 || running < r.opt.Parallel) && !r.stop.Load() && ctx.Err() == nil {
			n := wanted[q.ready[0]]
			q.ready = q.ready[1:]
			running++
			go func() { ended <- r.ensure(ctx, n) }()
		}
		if running == 0 {
			return results
		}
		res := <-ended
		running--
		results[res.node] = res
		if res.err == nil {
			q.done(res.node)
		}
	}
}

// queue knows which steps of a run can start. Each step and each edge is looked at once.
type queue struct {
	place map[*node]int // in the order of the run
	unmet []int         // how many of the steps that it waits for are not done
	next  [][]int       // the steps that wait for it
	ready []int         // the steps that can start, in the order of the run
}

// newQueue counts what each step waits for. Only steps that this run wants count: it wants all that a step needs, and
// perhaps not what the step is ordered after.
func newQueue(wanted []*node, s seals) *queue {
	q := &queue{place: make(map[*node]int, len(wanted)), unmet: make([]int, len(wanted)), next: make([][]int, len(wanted))}
	for i, n := range wanted {
		q.place[n] = i
	}
	for i, n := range wanted {
		for _, m := range s.before(n) { // one that is named twice counts twice, here and in done
			if first, ok := q.place[m]; ok {
				q.unmet[i]++
				q.next[first] = append(q.next[first], i)
			}
		}
		if q.unmet[i] == 0 {
			q.ready = append(q.ready, i)
		}
	}
	return q
}

// done makes the steps ready that waited for n as the last.
func (q *queue) done(n *node) {
	for _, i := range q.next[q.place[n]] {
		if q.unmet[i]--; q.unmet[i] == 0 {
			at, _ := slices.BinarySearch(q.ready, i)
			q.ready = slices.Insert(q.ready, at, i)
		}
	}
}
