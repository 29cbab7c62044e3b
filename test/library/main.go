// Command library bootstraps a cluster with Slipway's steps and two of its own: it replaces cilium and adds argo-cd.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/kind"
	"github.com/slipway-k8s/slipway/steps"
)

func main() {
	cfg, token, files := config.Defaults(), os.Getenv("HCLOUD_TOKEN"), platform.FilesIn("state")
	cfg.ClusterName = "shop"
	if wrong := cfg.Validate(); len(wrong) > 0 {
		log.Fatal(wrong)
	}
	tools := platform.Tools{Files: files, Token: platform.NewSecret(token)}
	tools.Hetzner = hcloud.NewClient(hcloud.WithToken(token))
	tools.Management = kind.New(cfg, tools)
	p, err := plan(cfg, tools)
	if err != nil {
		log.Fatal(err)
	}
	journal, show := flow.Folder(files.String()), func(e flow.Event) { fmt.Println(e.Kind, e.Step, e.Message, e.Err) }
	options := flow.Options{Journal: journal, Targets: p.All, Observe: show}
	if _, err := p.Graph.Run(context.Background(), options); err != nil {
		log.Fatal(err)
	}
	access, _, err := flow.Restore(context.Background(), journal, p.Access)
	fmt.Println(access.Endpoint, access.Kubeconfig, err)
}

// plan is Slipway's plan with argo-cd between wait-nodes and pivot, and with Cilium from a chart of our own.
func plan(cfg config.Config, tools platform.Tools) (*steps.Plan, error) {
	p, err := steps.New(cfg, tools)
	if err != nil {
		return nil, err
	}
	helm := func(name, namespace string) func(context.Context, flow.Say) (steps.Release, error) {
		return func(ctx context.Context, say flow.Say) (steps.Release, error) {
			say("installing charts/%s", name)
			out, err := exec.CommandContext(ctx, "helm", "upgrade", "--install", "--create-namespace", "-n", namespace,
				"--kubeconfig", tools.Files.Path(platform.Kubeconfig), name, "charts/"+name).CombinedOutput()
			say("helm: %s", out)
			return steps.Release{Name: name, Namespace: namespace}, err
		}
	}
	p.Cilium.Replace(helm("cilium", "kube-system")).Doc("Cilium, from our own chart").Spec("charts/cilium")
	p.Pivot.After(flow.Add(p.Graph, "argo-cd", helm("argo-cd", "argocd")).Doc("Argo CD").After(p.Nodes))
	return p, p.Graph.Validate()
}
