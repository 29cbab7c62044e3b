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
	"github.com/slipway-k8s/slipway/platform"
)

// fluxManages names the object by which Flux manages a Helm release; empty: it does not, or Flux is not configured.
func fluxManages(ctx context.Context, cfg config.Config, workload *kube.Cluster, namespace, release string) (string,
	error) {
	if cfg.GitOps != config.GitOpsFlux {
		return "", nil
	}
	return flux.Manages(ctx, workload, namespace, release)
}

// leftToFlux is a release that Flux manages, as it is deployed; nil: Flux does not manage it, and the run brings it to
// its chart and values. Of two that upgrade one release each would undo the other's work.
func leftToFlux(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say, workload *kube.Cluster,
	in render.Chart) (*Release, error) {
	by, err := fluxManages(ctx, cfg, workload, in.Namespace, in.Release)
	if err != nil || by == "" {
		return nil, err
	}
	owner, err := ownership.Identity(tools)
	if err != nil {
		return nil, err
	}
	helm, err := workload.Helm(in.Namespace, owner, func(string, ...any) {})
	if err != nil {
		return nil, err
	}
	is, err := helm.Deployed(in.Release)
	if err != nil {
		return nil, err
	}
	if is == nil {
		return nil, fmt.Errorf("%s manages Helm release %s, which is not deployed: its conditions say why, and a run leaves "+
			"it alone", by, in.Release)
	}
	say("%s manages release %s, chart version %s: the run leaves it alone", by, in.Release, is.Version)
	if is.Version != in.Version {
		say("note: chart %s is configured at version %s: change it in %s in the Git repository", in.Name, in.Version, by)
	}
	out := Release{Name: in.Release, Namespace: in.Namespace, Chart: in.Name, Version: is.Version, Revision: is.Revision}
	workloads, err := kube.Workloads(is.Manifest, in.Namespace)
	if err != nil {
		return nil, err
	}
	for _, w := range workloads {
		out.Workloads = append(out.Workloads, Workload(w))
	}
	return &out, nil
}
