// Command library bootstraps a cluster in the lab of a state folder. It adds the step argo-cd and replaces clean.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/lab"
	"github.com/slipway-k8s/slipway/steps"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, state, cfg := context.Background(), os.Args[1], config.Defaults()
	cfg.ClusterName, cfg.ControlPlaneReplicas = "shop", 1
	cfg, tools, err := lab.Use(ctx, cfg, platform.Tools{Files: platform.FilesIn(state)})
	if err != nil {
		log.Fatal(err)
	}
	p, show := plan(cfg, tools), func(e flow.Event) { fmt.Println(e.Kind, e.Step, e.Message, e.Err) }
	if _, err := p.Graph.Run(ctx, flow.Options{Journal: flow.Folder(state), Targets: p.All, Observe: show}); err != nil {
		log.Fatal(err)
	}
	access, _, err := flow.Restore(ctx, flow.Folder(state), p.Access)
	fmt.Println("output", access.Endpoint, access.Kubeconfig, err)
}

// plan is Slipway's plan with argo-cd between wait-nodes and pivot, and with a step clean that deletes nothing.
func plan(cfg config.Config, tools platform.Tools) *steps.Plan {
	p, err := steps.New(cfg, tools)
	if err != nil {
		log.Fatal(err)
	}
	keep := func(_ context.Context, say flow.Say) (steps.Clean, error) {
		say("keeping management cluster %s", cfg.ManagementName())
		return steps.Clean{Name: cfg.ManagementName(), Left: true}, nil
	}
	p.Clean.Replace(flow.Task[steps.Clean]{Doc: "the management cluster is kept", Run: flow.Do(keep)})
	flow.Add(p.Graph, flow.Task[string]{Name: "argo-cd", Doc: "Argo CD", After: flow.Of(p.Nodes), Before: flow.Of(p.Pivot),
		Run: flow.With1(func(ctx context.Context, say flow.Say, k steps.Kubeconfig) (string, error) {
			access, err := clientcmd.BuildConfigFromFlags("", tools.Files.Path(k.File))
			if err != nil {
				return "", err
			}
			say("applying namespace argocd")
			namespaces := kubernetes.NewForConfigOrDie(access).CoreV1().Namespaces()
			made, err := namespaces.Apply(ctx, apply.Namespace("argocd"), meta.ApplyOptions{FieldManager: "argo-cd"})
			return string(made.GetUID()), err
		}, p.Kubeconfig)})
	return p
}
