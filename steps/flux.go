package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/flux"
	"github.com/slipway-k8s/slipway/platform"
)

// Flux is Flux in the workload cluster.
type Flux struct {
	Version   string     `json:"version"`
	Manifest  string     `json:"manifest"` // SHA-256 of the install manifest
	Workloads []Workload `json:"workloads"`
}

// Flux adds the step flux to a graph: Flux's controllers run in the workload cluster.
func (s *Set) Flux(g *flow.Graph) *flow.Step[Flux] {
	within := s.cfg.ReleaseTimeout.D()
	return flow.Add(g, flow.Task[Flux]{
		Name:     "flux",
		Doc:      "Flux's controllers run in the cluster",
		Run:      doIn(s, s.runFlux),
		Spec:     map[string]string{"version": s.cfg.FluxVersion},
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyFlux),
		Deadline: 2*within + wait.Overhead,
		Waits: []flow.Wait{
			wait.Download,
			{For: "the API server to take Flux's objects (RELEASE_TIMEOUT)", Within: within},
			{For: "Flux's controllers (RELEASE_TIMEOUT)", Within: within},
		},
	})
}

func (s *Set) runFlux(ctx context.Context, say flow.Say, workload *kube.Cluster) (Flux, error) {
	manifest, err := flux.Manifest(ctx, s.cfg, say)
	if err != nil {
		return Flux{}, err
	}
	objects, workloads, err := flux.Objects(s.cfg, manifest)
	if err != nil {
		return Flux{}, err
	}
	say("applying %d objects of Flux %s", len(objects), s.cfg.FluxVersion)
	if err := s.applyFlux(ctx, say, workload, objects); err != nil {
		return Flux{}, err
	}
	digest := sha256.Sum256(manifest)
	out := Flux{Version: s.cfg.FluxVersion, Manifest: hex.EncodeToString(digest[:]), Workloads: recorded(workloads)}
	return out, s.awaitFlux(ctx, say, workload, workloads)
}

// applyFlux applies the objects, waiting while the API server does not take one: of its own accord, or because another
// one, such as a namespace, is not known to all API servers yet.
func (s *Set) applyFlux(ctx context.Context, say flow.Say, workload *kube.Cluster,
	objects []*unstructured.Unstructured) error {
	next := 0
	return wait.Wait{What: "the API server to take Flux's objects", Within: s.cfg.ReleaseTimeout.D()}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			for ; next < len(objects); next++ {
				err := workload.Apply(ctx, objects[next])
				if err != nil && !kube.Unwell(err) {
					return "", wait.Final(err)
				}
				if err != nil {
					return "", err
				}
			}
			return "", nil
		})
}

func (s *Set) awaitFlux(ctx context.Context, say flow.Say, workload *kube.Cluster, workloads []kube.Workload) error {
	w := wait.Wait{What: "Flux's controllers", Within: s.cfg.ReleaseTimeout.D()}
	return untilIn(ctx, say, w, workload, workloadsOf(flux.Namespace),
		func(ctx context.Context) (string, error) { return workload.Unready(ctx, workloads...) })
}

// verifyFlux asks whether the controllers are there and ready. Their version may be another than the recorded one: a
// repository that has Flux's own manifest upgrades it.
func (s *Set) verifyFlux(ctx context.Context, workload *kube.Cluster, was Flux) flow.Verdict {
	unready, err := Release{Workloads: was.Workloads}.unready(ctx, workload)
	if err != nil {
		err = fmt.Errorf("look at Flux's controllers: %w", err)
	}
	return complete(unready, err)
}
