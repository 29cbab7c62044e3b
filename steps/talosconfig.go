package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Talosconfig is the file that opens the Talos API of the servers.
type Talosconfig struct {
	File        string   `json:"file"` // in the state folder
	Fingerprint string   `json:"fingerprint"`
	Endpoints   []string `json:"endpoints"` // the load balancer
	Nodes       []string `json:"nodes"`     // the control plane servers' private addresses
}

// Talosconfig adds the step talosconfig to a graph: the state folder has the cluster's talosconfig.
func (s *Set) Talosconfig(g *flow.Graph, management *flow.Step[Management],
	cluster *flow.Step[Cluster]) *flow.Step[Talosconfig] {
	step := newTalosconfigStep(s)
	return flow.Add(g, flow.Task[Talosconfig]{
		Name:     "talosconfig",
		Doc:      "the cluster's talosconfig, as a file",
		Run:      flow.With2(step.run, management, cluster),
		Verify:   step.verify,
		Deadline: s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg)},
	})
}

// talosconfigStep runs and verifies the step talosconfig.
type talosconfigStep struct {
	cfg      config.Config
	tools    platform.Tools
	observer *situation.Observer
}

func newTalosconfigStep(s *Set) talosconfigStep {
	return talosconfigStep{cfg: s.cfg, tools: s.tools, observer: s.observer}
}

// run takes the credentials that the bootstrap provider keeps and points them at the load balancer, with
// all control plane servers behind it. The provider's own list names the servers' public addresses, which a firewall
// will close, and grows while they come up.
func (t talosconfigStep) run(ctx context.Context, say flow.Say, m Management, c Cluster) (Talosconfig, error) {
	mgmt, err := connect.Cluster(t.tools, m.Kubeconfig)
	if err != nil {
		return Talosconfig{}, err
	}
	out, err := talosconfig.Write(ctx, t.cfg, t.tools, t.observer, say, mgmt, c.watched(t.cfg.Namespace))
	return Talosconfig(out), err
}

// verify compares what matters in the file with the cluster. Not the bytes: the provider writes its own with a
// new certificate whenever it looks at a machine.
func (t talosconfigStep) verify(ctx context.Context, was Talosconfig) flow.Verdict {
	mgmt, err := connect.Cluster(t.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	return talosconfig.Verify(ctx, t.cfg, t.tools, mgmt, talosconfig.File(was))
}
