package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
)

// fluxManages names the object by which Flux manages a Helm release; empty: it does not, or Flux is not configured.
func (s *Set) fluxManages(ctx context.Context, workload *kube.Cluster, namespace, release string) (string, error) {
	if s.cfg.GitOps != config.GitOpsFlux {
		return "", nil
	}
	return flux.Manages(ctx, workload, namespace, release)
}

// leftToFlux is a release that Flux manages, as it is deployed; false: Flux does not manage it, and the run brings it
// to its chart and values. Of two that upgrade one release each would undo the other's work.
func (s *Set) leftToFlux(ctx context.Context, say flow.Say, workload *kube.Cluster, in render.Chart) (out Release,
	left bool, err error) {
	by, err := s.fluxManages(ctx, workload, in.Namespace, in.Release)
	if err != nil || by == "" {
		return out, false, err
	}
	owner, err := ownership.Identity(s.tools)
	if err != nil {
		return out, false, err
	}
	helm, err := workload.Helm(in.Namespace, owner, quiet)
	if err != nil {
		return out, false, err
	}
	is, err := helm.Deployed(in.Release)
	if err != nil {
		return out, false, err
	}
	if is == nil {
		return out, false, fmt.Errorf("%s manages Helm release %s, which is not deployed: its conditions say why, and a run leaves "+
			"it alone", by, in.Release)
	}
	say("%s manages release %s, chart version %s: the run leaves it alone", by, in.Release, is.Version)
	if is.Version != in.Version {
		say("note: chart %s is configured at version %s: change it in %s in the Git repository", in.Name, in.Version, by)
	}
	out, err = releaseOf(in, is.Version, is.Revision, is.Manifest)
	return out, true, err
}
