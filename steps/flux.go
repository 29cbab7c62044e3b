package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
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
	step := fluxStep{cfg: s.cfg, tools: s.tools}
	within := s.cfg.ReleaseTimeout.D()
	return flow.Add(g, flow.Task[Flux]{
		Name:     "flux",
		Doc:      "Flux's controllers run in the cluster",
		Run:      flow.Do(step.run),
		Spec:     map[string]string{"version": s.cfg.FluxVersion},
		Verify:   step.verify,
		Deadline: 2*within + wait.Overhead,
		Waits: []flow.Wait{
			wait.Download,
			{For: "the API server to take Flux's objects (RELEASE_TIMEOUT)", Within: within},
			{For: "Flux's controllers (RELEASE_TIMEOUT)", Within: within},
		},
	})
}

// fluxStep runs and verifies the step flux.
type fluxStep struct {
	cfg   config.Config
	tools platform.Tools
}

func (f fluxStep) run(ctx context.Context, say flow.Say) (Flux, error) {
	manifest, err := flux.Manifest(ctx, f.cfg, say)
	if err != nil {
		return Flux{}, err
	}
	objects, workloads, err := flux.Objects(f.cfg, manifest)
	if err != nil {
		return Flux{}, err
	}
	workload, err := connect.Cluster(f.tools, platform.Kubeconfig)
	if err != nil {
		return Flux{}, err
	}
	say("applying %d objects of Flux %s", len(objects), f.cfg.FluxVersion)
	if err := f.apply(ctx, say, workload, objects); err != nil {
		return Flux{}, err
	}
	digest := sha256.Sum256(manifest)
	out := Flux{Version: f.cfg.FluxVersion, Manifest: hex.EncodeToString(digest[:])}
	for _, w := range workloads {
		out.Workloads = append(out.Workloads, Workload(w))
	}
	return out, f.await(ctx, say, workload, workloads)
}

// apply applies the objects, waiting while the API server does not take one: of its own accord, or because another one,
// such as a namespace, is not known to all API servers yet.
func (f fluxStep) apply(ctx context.Context, say flow.Say, workload *kube.Cluster,
	objects []*unstructured.Unstructured) error {
	next := 0
	return wait.Wait{What: "the API server to take Flux's objects", Within: f.cfg.ReleaseTimeout.D()}.Until(ctx, say,
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

func (f fluxStep) await(ctx context.Context, say flow.Say, workload *kube.Cluster, workloads []kube.Workload) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	in := []client.ListOption{client.InNamespace(flux.Namespace)}
	return wait.Wait{What: "Flux's controllers", Within: f.cfg.ReleaseTimeout.D(), Changes: workload.Changes(watching,
		kube.Selection{List: &appsv1.DeploymentList{}, Options: in}, kube.Selection{List: &corev1.PodList{}, Options: in}),
	}.Until(ctx, say, func(ctx context.Context) (string, error) { return workload.Unready(ctx, workloads...) })
}

// verify asks whether the controllers are there and ready. Their version may be another than the recorded one: a
// repository that has Flux's own manifest upgrades it.
func (f fluxStep) verify(ctx context.Context, was Flux) flow.Verdict {
	workload, err := connect.Cluster(f.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	unready, err := workload.Unready(ctx, Release{Workloads: was.Workloads}.workloads()...)
	switch {
	case err != nil:
		return kube.Verdict(fmt.Errorf("look at Flux's controllers: %w", err))
	case unready != "":
		return flow.Gone("%s", unready)
	}
	return flow.Holds()
}
