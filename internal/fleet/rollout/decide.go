package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// decision is what follows from where the clusters of a rollout are.
type decision struct {
	release []string // clusters whose turn has come
	ended   bool     // nothing is at work, and nothing follows
	held    string   // why the clusters that wait are not begun any more; empty: they are
}

// Held says why the clusters of a rollout that wait are not begun; empty: they are, or none waits.
func (r Rollout) Held(all []Status) string { return r.decide(all).held }

// decide says what is next. all are the clusters that have a Job, those of earlier rollouts too.
func (r Rollout) decide(all []Status) decision {
	var waiting, canariesWaiting, failed, lost []string
	working, canariesOpen, phases := 0, false, map[string]Phase{}
	for _, s := range all {
		if !slices.Contains(r.Entries, Entry{s.Cluster, s.Job}) {
			if s.Phase.working() {
				working++
			}
			continue
		}
		phases[s.Cluster] = s.Phase
	}
	others := working
	for _, e := range r.Entries {
		canary := slices.Contains(r.Canary, e.Cluster)
		phase, exists := phases[e.Cluster]
		switch {
		case !exists:
			lost = append(lost, e.Cluster)
			continue
		case phase == Failed:
			failed = append(failed, e.Cluster)
		case phase == Done:
			continue
		case phase.working() || slices.Contains(r.Released, e.Cluster):
			working++
		case canary:
			canariesWaiting = append(canariesWaiting, e.Cluster)
		default:
			waiting = append(waiting, e.Cluster)
		}
		canariesOpen = canariesOpen || canary
	}
	var d decision
	canaryFailed := slices.ContainsFunc(failed, func(c string) bool { return slices.Contains(r.Canary, c) })
	switch {
	case r.Stopped:
		d.held = "the rollout was stopped (fleet stop)"
	case len(lost) > 0:
		d.held = fmt.Sprintf("the Jobs of %s are gone: apply the fleet again", strings.Join(lost, ", "))
	case canaryFailed:
		d.held = "a canary has failed"
	case len(failed) > r.MaxFailures:
		d.held = fmt.Sprintf("%d clusters have failed, and maxFailures is %d", len(failed), r.MaxFailures)
	}
	next := append(canariesWaiting, waiting...)
	if canariesOpen {
		next = canariesWaiting
	}
	if d.held == "" {
		d.release = next[:max(0, min(len(next), r.MaxParallel-working))]
	}
	d.ended = working == others && len(d.release) == 0 && (others == 0 || d.held != "" || len(next) == 0)
	if len(waiting)+len(canariesWaiting)+len(lost) == 0 {
		d.held = ""
	}
	return d
}
