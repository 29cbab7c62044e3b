package steps

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
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
	return flow.Add(g, flow.Task[Talosconfig]{
		Name:     "talosconfig",
		Doc:      "the cluster's talosconfig, as a file",
		Run:      flow.With2(s.runTalosconfig, management, cluster),
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyTalosconfig),
		Deadline: s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg)},
	})
}

// runTalosconfig takes the credentials that the bootstrap provider keeps and points them at the load balancer, with
// all control plane servers behind it. The provider's own list names the servers' public addresses, which a firewall
// will close, and grows while they come up.
func (s *Set) runTalosconfig(ctx context.Context, say flow.Say, m Management, c Cluster) (Talosconfig, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return Talosconfig{}, err
	}
	out, err := talosconfig.Write(ctx, s.cfg, s.tools, s.observer, say, mgmt, c.watched(s.cfg.Namespace))
	return Talosconfig(out), err
}

// verifyTalosconfig compares what matters in the file with the cluster. Not the bytes: the provider writes its own with
// a new certificate whenever it looks at a machine.
func (s *Set) verifyTalosconfig(ctx context.Context, mgmt *kube.Cluster, was Talosconfig) flow.Verdict {
	return talosconfig.Verify(ctx, s.cfg, s.tools, mgmt, talosconfig.File(was))
}
