package steps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/platform"
)

// FluxReleases are the HelmReleases that were stuck when the step ran.
type FluxReleases struct {
	Recovered []RecoveredRelease `json:"recovered,omitempty"`
}

// RecoveredRelease is a HelmRelease that was stuck, and what was done.
type RecoveredRelease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind"` // pending, status
	What      string `json:"what"`
}

// FluxReleases adds the step flux-releases to a graph: no HelmRelease is stuck. It waits for none: one that its
// controller works on, or that is not Ready for another reason, is left alone.
func (s *Set) FluxReleases(g *flow.Graph) *flow.Step[FluxReleases] {
	const recovery = releases.Most * releases.RecoverWithin
	return flow.Add(g, flow.Task[FluxReleases]{
		Name:     "flux-releases",
		Doc:      fmt.Sprintf("no HelmRelease is stuck; at most %d that are get recovered, each once", releases.Most),
		Run:      doIn(s, s.runFluxReleases),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyFluxReleases),
		Deadline: recovery + wait.TakenWithin + wait.Overhead,
		Waits: []flow.Wait{
			{For: "the API server to list the HelmReleases", Within: wait.TakenWithin},
			{For: fmt.Sprintf("the requests that recover at most %d HelmReleases", releases.Most), Within: recovery},
		},
	})
}

func (s *Set) fluxReleasesOptions(dryRun bool) releases.Options {
	return releases.Options{Threshold: releases.DefaultThreshold, By: strings.TrimSpace("slipway " + s.tools.Version),
		DryRun: dryRun}
}

// runFluxReleases says what it did with each HelmRelease that is not Ready.
func (s *Set) runFluxReleases(ctx context.Context, say flow.Say, workload *kube.Cluster) (FluxReleases, error) {
	report, err := s.examineFluxReleases(ctx, say, workload)
	if errors.Is(err, releases.ErrNoKind) { // Flux was installed without its helm-controller
		say("the cluster has no HelmReleases")
		return FluxReleases{}, nil
	}
	if err == nil && len(report.Stuck) > 0 {
		report, err = releases.Recover(ctx, workload, say, s.fluxReleasesOptions(false))
	}
	var out FluxReleases
	for _, s := range report.Stuck {
		switch s.Outcome {
		case releases.Recovered:
			out.Recovered = append(out.Recovered, RecoveredRelease{s.Namespace, s.Name, string(s.Kind), s.What})
			say("HelmRelease %s/%s: recovered: %s", s.Namespace, s.Name, s.What)
		case releases.ChangedByOther:
			say("HelmRelease %s/%s: %s: %s", s.Namespace, s.Name, s.Outcome, s.Error)
		}
	}
	for _, l := range report.Left {
		say("HelmRelease %s/%s: not Ready, left alone: %s", l.Namespace, l.Name, l.Why)
	}
	if err == nil {
		say("%s", report.Summary())
	}
	return out, err
}

// examineFluxReleases examines the HelmReleases and changes nothing. It waits while the API server does not answer.
func (s *Set) examineFluxReleases(ctx context.Context, say flow.Say, workload *kube.Cluster) (report releases.Report,
	err error) {
	err = wait.Wait{What: "the API server to list the HelmReleases", Within: wait.TakenWithin}.Until(ctx, say,
		func(ctx context.Context) (_ string, err error) {
			report, err = releases.Recover(ctx, workload, quiet, s.fluxReleasesOptions(true))
			if err != nil && !kube.Unwell(err) && !kube.UnknownKind(err) {
				err = wait.Final(err)
			}
			return "", err
		})
	return report, err
}

func quiet(string, ...any) {}

// verifyFluxReleases examines the HelmReleases as a run does, and changes nothing. What gets stuck between two runs has
// nothing to do with what the step was made from.
func (s *Set) verifyFluxReleases(ctx context.Context, workload *kube.Cluster, _ FluxReleases) flow.Verdict {
	report, err := releases.Recover(ctx, workload, quiet, s.fluxReleasesOptions(true))
	var many *releases.TooManyError
	switch {
	case errors.Is(err, releases.ErrNoKind):
		return flow.Holds()
	case err != nil && !errors.As(err, &many):
		return flow.Unknown(err)
	case len(report.Stuck) == 0:
		return flow.Holds()
	}
	first := report.Stuck[0]
	if len(report.Stuck) == 1 {
		return flow.Gone("HelmRelease %s/%s is stuck: %s", first.Namespace, first.Name, first.Why)
	}
	return flow.Gone("%d HelmReleases are stuck, the first is %s/%s: %s", len(report.Stuck), first.Namespace, first.Name,
		first.Why)
}
