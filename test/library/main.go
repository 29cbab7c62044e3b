// Command library FOLDER bootstraps a cluster in the lab, with steps of its own; FOLDER upgrade upgrades it instead.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/slipway-k8s/slipway"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, cfg, show := context.Background(), config.Defaults(), func(e flow.Event) { fmt.Println(e.Kind, e.Step, e.Message, e.Err) }
	cfg.ClusterName, cfg.ControlPlaneReplicas = "shop", 1
	s, err := slipway.Open(ctx, cfg, slipway.Options{StateDir: os.Args[1], Lab: true, Observe: show, Yes: true})
	if err != nil {
		log.Fatal(err)
	}
	if add(s); len(os.Args) > 2 {
		_, err = s.Upgrade(ctx, slipway.UpgradeOptions{})
	} else if result, failed := s.Run(ctx, slipway.All); failed != nil {
		err = failed
	} else if access, unread := slipway.Output(ctx, result, s.Plan.Access); unread == nil {
		fmt.Println("output", access.Endpoint, access.Kubeconfig)
	}
	if err := errors.Join(err, s.Close()); err != nil {
		log.Fatal(err)
	}
}

// add adds argo-cd between wait-nodes and pivot to the plan, and has the step clean delete nothing.
func add(s *slipway.Session) {
	keep := func(_ context.Context, say flow.Say) (steps.Clean, error) {
		say("keeping management cluster %s", s.Config().ManagementName())
		return steps.Clean{Name: s.Config().ManagementName(), Left: true}, nil
	}
	install := func(ctx context.Context, say flow.Say, k steps.Kubeconfig) (string, error) {
		access, err := clientcmd.BuildConfigFromFlags("", s.Path(k.File))
		if err != nil {
			return "", err
		}
		say("applying namespace argocd")
		namespaces := kubernetes.NewForConfigOrDie(access).CoreV1().Namespaces()
		made, err := namespaces.Apply(ctx, apply.Namespace("argocd"), meta.ApplyOptions{FieldManager: "argo-cd"})
		return string(made.GetUID()), err
	}
	s.Plan.Clean.Replace(flow.Task[steps.Clean]{Doc: "the management cluster is kept", Run: flow.Do(keep)})
	flow.Add(s.Plan.Graph, flow.Task[string]{Name: "argo-cd", Doc: "Argo CD", Run: flow.With1(install, s.Plan.Kubeconfig),
		After: flow.Of(s.Plan.Nodes), Before: flow.Of(s.Plan.Pivot)})
}
