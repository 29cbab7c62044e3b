package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// decision is what follows from where the clusters of a rollout are.
type decision struct {
	release []string // clusters whose turn has come
	// providers: the Job that installs the providers is to begin.
	providers bool
	ended     bool   // nothing is at work, and nothing follows
	held      string // why the clusters that wait are not begun any more; empty: they are
}

// lost is the phase of a Job that is gone.
const lost Phase = "lost"

// decide says what is next.
func (r Rollout) decide(is observed) decision {
	providers := is.providers.Phase
	var waiting, canariesWaiting, failed, missing []string
	working, canariesOpen, phases := 0, false, map[string]Phase{}
	for _, s := range is.clusters {
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
			missing = append(missing, e.Cluster)
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
	case len(missing) > 0:
		d.held = fmt.Sprintf("the Jobs of %s are gone: apply the fleet again", strings.Join(missing, ", "))
	case providers == lost:
		d.held = fmt.Sprintf("the Job %s/%s, which installs the providers, is gone: apply the fleet again", r.Namespace,
			r.Providers)
	case providers == Failed:
		d.held = fmt.Sprintf("the providers could not be installed: Job %s/%s has failed: %s\nto try again: apply the fleet again",
			r.Namespace, r.Providers, is.providers.Message)
	case canaryFailed:
		d.held = "a canary has failed"
	case len(failed) > r.MaxFailures:
		d.held = fmt.Sprintf("%d clusters have failed, and maxFailures is %d", len(failed), r.MaxFailures)
	}
	next := append(canariesWaiting, waiting...)
	if canariesOpen {
		next = canariesWaiting
	}
	installing := d.held == "" && providers != Done && len(next) > 0
	d.providers = installing && providers == Waiting
	if d.held == "" && !installing {
		d.release = next[:max(0, min(len(next), r.MaxParallel-working))]
	}
	d.ended = !installing && working == others && len(d.release) == 0 && (others == 0 || d.held != "" || len(next) == 0)
	if len(waiting)+len(canariesWaiting)+len(missing) == 0 {
		d.held = ""
	}
	return d
}
