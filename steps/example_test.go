package steps_test

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/platform/kind"
	"github.com/slipway-k8s/slipway/steps"
)

// A plan with a step between two of Slipway's, and with another function in the place of one of them.
// docs/library.md runs it.
func ExampleNew() {
	cfg := config.Defaults()
	tools := platform.Tools{Files: platform.FilesIn("state")} // and Hetzner and Token, to run it
	tools.Management = kind.New(cfg, tools)
	p, err := steps.New(cfg, tools)
	if err != nil {
		fmt.Println(err)
		return
	}
	install := func(name string) func(context.Context, flow.Say) (steps.Release, error) {
		return func(_ context.Context, say flow.Say) (steps.Release, error) {
			say("installing %s with %s", name, tools.Files.Path(platform.Kubeconfig))
			return steps.Release{Name: name}, nil
		}
	}
	p.Cilium.Replace(flow.Task[steps.Release]{
		Doc:    "Cilium, from our own chart",
		Run:    flow.Do(install("cilium")),
		Spec:   "charts/cilium",
		Verify: func(context.Context, steps.Release) flow.Verdict { return flow.Holds() }, // really: ask the cluster
	})
	flow.Add(p.Graph, flow.Task[steps.Release]{
		Name:   "argo-cd",
		Doc:    "Argo CD",
		Run:    flow.Do(install("argo-cd")),
		After:  flow.Of(p.Nodes),
		Before: flow.Of(p.Pivot),
	})
	for _, s := range p.Graph.Steps() {
		if s.Name == "argo-cd" || s.Name == "cilium" || s.Name == "pivot" {
			fmt.Println(s.Name, "needs", s.Needs)
		}
	}
	fmt.Println(p.Graph.Validate())

	// Output:
	// cilium needs [kubeconfig wait-cp]
	// argo-cd needs [wait-nodes]
	// pivot needs [wait-nodes wait-workers wait-machines providers talosconfig argo-cd]
	// <nil>
}
