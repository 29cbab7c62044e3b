package steps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// stableFor is how long the containers of a release have to run without a restart, from when its workloads were first
	// seen available. A kubelet restarts a container that ends at once, and after 10 s when it ends again: a program that
	// ends at its start has been restarted by then. It is what minReadySeconds is for, which no chart here sets.
	stableFor = 10 * time.Second
	// stableEvery is the time between two looks, because the end of that time is no change that can be watched.
	stableEvery = time.Second
)

// Stability names the releases whose workloads stayed available.
type Stability struct {
	Releases []Release `json:"releases"`
}

// Stable adds the step wait-releases to a graph: the workloads of the releases stay available. It runs beside the steps
// that need no more than that they were available once, so that no step waits for it but the end of the run.
func (s *Set) Stable(g *flow.Graph, cilium *flow.Step[Release], hcloudCCM *flow.Step[CloudController],
	talosCCM *flow.Step[Release], addons *flow.Step[Addons]) *flow.Step[Stability] {
	return flow.Add(g, flow.Task[Stability]{
		Name:     "wait-releases",
		Doc:      "the workloads of the releases stay available, and no container of them restarts",
		Run:      flow.With4(s.runStable, cilium, hcloudCCM, talosCCM, addons),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyStable),
		Deadline: s.cfg.ReleaseTimeout.D() + wait.Overhead,
		Waits: []flow.Wait{
			{For: "the workloads to stay available (RELEASE_TIMEOUT)", Within: s.cfg.ReleaseTimeout.D()},
		},
	})
}

func (s *Set) runStable(ctx context.Context, say flow.Say, cilium Release, hcloudCCM CloudController,
	talosCCM Release, addons Addons) (Stability, error) {
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return Stability{}, err
	}
	var selected []kube.Selection
	var out Stability
	var seen []*steadiness
	for _, r := range append([]Release{cilium, hcloudCCM.Release, talosCCM}, addons.Releases...) {
		out.Releases = append(out.Releases, r)
		seen = append(seen, &steadiness{release: r, log: s.logCommand(r), window: stableFor})
		if !slices.ContainsFunc(seen[:len(seen)-1], func(o *steadiness) bool { return o.release.Namespace == r.Namespace }) {
			selected = append(selected, workloadsOf(r.Namespace)...)
		}
	}
	w := wait.Wait{What: "the releases", Within: s.cfg.ReleaseTimeout.D(), Every: stableEvery}
	err = untilIn(ctx, say, w, workload, selected, func(ctx context.Context) (string, error) {
		var missing []string
		for _, one := range seen {
			unsteady, err := one.look(ctx, workload, time.Now())
			if err != nil {
				return "", err
			}
			missing = append(missing, unsteady)
		}
		return wait.Sentences(missing...), nil
	})
	return out, err
}

// logCommand is what shows the log of a release.
func (s *Set) logCommand(r Release) string {
	for _, in := range render.AllCharts(s.cfg, s.sources) {
		if in.Release == r.Name {
			return s.tools.Command("logs", in.Program, "--no-follow")
		}
	}
	return ""
}

// steadiness is what was seen of a release during a run. It counts this process's time from what it saw itself: the
// clocks of the cluster's servers may be others.
type steadiness struct {
	release Release
	log     string // command that shows its log
	window  time.Duration

	since time.Time // when its workloads were first seen available, with these runs
	runs  map[kube.Container]kube.Run
	ended string // the last restart that was seen
}

// look says why a release does not count as stable yet; empty: it does.
func (s *steadiness) look(ctx context.Context, in *kube.Cluster, now time.Time) (string, error) {
	unready, err := s.release.unready(ctx, in)
	if err != nil {
		return "", err
	}
	runs, err := in.Runs(ctx, s.release.workloads()...)
	if err != nil {
		if kube.Absent(err) {
			s.since = time.Time{}
			return unready, nil
		}
		return "", err
	}
	restarted := restarts(s.runs, runs)
	crashing := crashes(runs)
	s.runs = runs
	switch {
	case crashing != "":
		s.since, s.ended = time.Time{}, ""
		return fmt.Sprintf("%s (its log: %s)", crashing, s.log), nil
	case unready != "":
		s.since = time.Time{}
		return unready, nil
	case restarted != "":
		s.since, s.ended = now, restarted
	case s.since.IsZero():
		s.since = now
	}
	if len(runs) == 0 || now.Sub(s.since) >= s.window {
		return "", nil
	}
	if s.ended != "" {
		return fmt.Sprintf("%s (its log: %s)", s.ended, s.log), nil
	}
	return fmt.Sprintf("%s is to stay available for %s", s.release.Name, config.Duration(s.window)), nil
}

// restarts names the first container that was restarted between two looks; empty: none was.
func restarts(was, is map[kube.Container]kube.Run) string {
	return first(is, func(c kube.Container, r kube.Run) bool {
		before, known := was[c]
		return known && r.Restarts > before.Restarts
	})
}

// crashes names the first container that ends again and again; empty: none does.
func crashes(runs map[kube.Container]kube.Run) string {
	return first(runs, func(_ kube.Container, r kube.Run) bool { return r.Crashes })
}

func first(runs map[kube.Container]kube.Run, is func(kube.Container, kube.Run) bool) string {
	var found []string
	for c, r := range runs {
		if is(c, r) {
			found = append(found, r.Ended)
		}
	}
	slices.Sort(found)
	return strings.Join(found[:min(len(found), 1)], "")
}

// verifyStable asks whether the workloads are available and none of their containers ends again and again.
func (s *Set) verifyStable(ctx context.Context, workload *kube.Cluster, was Stability) flow.Verdict {
	for _, r := range was.Releases {
		unready, err := r.unready(ctx, workload)
		if err != nil {
			return kube.Verdict(err)
		}
		runs, err := workload.Runs(ctx, r.workloads()...)
		if err != nil {
			return kube.Verdict(err)
		}
		if trouble := cmp.Or(crashes(runs), unready); trouble != "" {
			return flow.Gone("%s", trouble)
		}
	}
	return flow.Holds()
}
