package steps

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/stockout"
	"github.com/slipway-k8s/slipway/platform"
)

// ControlPlane is the workload cluster's own API.
type ControlPlane struct {
	Endpoint string `json:"endpoint"`
	UID      string `json:"uid"` // of its namespace kube-system
	// Continued tells with what server type and locations the control plane was continued, and why.
	Continued []string `json:"continued,omitempty"`
}

// ControlPlane adds the step wait-cp to a graph: the workload cluster's API answers through the load balancer.
func (s *Set) ControlPlane(g *flow.Graph, management *flow.Step[Management],
	cluster *flow.Step[Cluster]) *flow.Step[ControlPlane] {
	step := newControlPlaneStep(s)
	return flow.Add(g, flow.Task[ControlPlane]{
		Name:     "wait-cp",
		Doc:      "servers, Talos, etcd and the Kubernetes API answer through the load balancer",
		Run:      flow.With2(step.run, management, cluster),
		Verify:   step.verify,
		Deadline: s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg)},
	})
}

// controlPlaneStep runs and verifies the step wait-cp.
type controlPlaneStep struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newControlPlaneStep(s *Set) controlPlaneStep {
	return controlPlaneStep{cfg: s.cfg, tools: s.tools, sources: s.sources, observer: s.observer}
}

// run waits until the Kubernetes API answers through the load balancer. It does not wait for replicas to be ready:
// those are Nodes, and none is Ready before Cilium, which needs the API. Machines that keep etcd from being started it
// deletes; see surplus.
func (step controlPlaneStep) run(ctx context.Context, say flow.Say, m Management, c Cluster) (ControlPlane, error) {
	mgmt, err := connect.Cluster(step.tools, m.Kubeconfig)
	if err != nil {
		return ControlPlane{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: capi.ListOf(capi.HetznerClusterKind),
			Options: []client.ListOption{client.InNamespace(step.cfg.Namespace)}},
		kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
			Options: []client.ListOption{client.InNamespace(step.cfg.Namespace)}},
		kube.Selection{List: capi.ListOf(capi.MachineKind), Options: capi.OfCluster(step.cfg.Namespace, c.Name)},
		kube.Selection{List: capi.ListOf(capi.HCloudMachineKind), Options: capi.OfCluster(step.cfg.Namespace, c.Name)},
	)
	out := ControlPlane{Endpoint: c.Endpoint}
	spare := surplus{b: step, mgmt: mgmt, cluster: c}
	stock := stockout.Watch{Cfg: step.cfg, Tools: step.tools, Sources: step.sources, Say: say}
	w := wait.Wait{What: "the control plane", Within: step.cfg.ControlPlaneTimeout.D(), Every: wait.ControlPlaneEvery,
		Changes: changes, Whole: true}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		s, uid := step.observer.Observe(ctx, mgmt, c.watched(step.cfg.Namespace))
		if out.UID = uid; uid != "" { // what follows needs the API, and not that CACPPT has seen it, which takes seconds more
			return "", nil
		}
		a := step.observer.Explain(s)
		did, err := situation.DeleteUnmade(ctx, step.tools, mgmt, c.watched(step.cfg.Namespace), s)
		if did != "" || err != nil {
			return did, err
		}
		changed, lacks, err := stock.Check(ctx, mgmt)
		if err != nil || changed {
			return a.Summary(), err
		}
		busy, keeps, err := spare.look(ctx, say, s)
		if terminal := a.Terminal(step.observer.Began); terminal != nil && !busy {
			return "", wait.Final(fmt.Errorf("waiting for the control plane: %w; last seen: %s", terminal, a.Summary()))
		}
		return wait.Sentences(a.Summary(), lacks, keeps), err
	})
	out.Continued = stock.Changed
	return out, err
}

// watched is what there is to look at of it.
func (c Cluster) watched(namespace string) situation.Watched {
	return situation.Watched{Namespace: namespace, Name: c.Name, ControlPlane: c.ControlPlane,
		LoadBalancerIP: c.LoadBalancerIP}
}

// verify asks the workload cluster itself. Silence is no answer: servers restart, lines break.
func (step controlPlaneStep) verify(ctx context.Context, was ControlPlane) flow.Verdict {
	mgmt, err := connect.Cluster(step.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	config, err := connect.WorkloadKubeconfig(ctx, mgmt, step.cfg.Namespace, step.cfg.ClusterName)
	if err != nil {
		return kube.Verdict(err)
	}
	workload, err := step.tools.Connect(config)
	if err != nil {
		return flow.Unknown(err)
	}
	uid, err := workload.UID(ctx)
	switch {
	case err != nil:
		return flow.Unknown(fmt.Errorf("the cluster's API at %s does not answer: %w", was.Endpoint, err))
	case uid != was.UID:
		return flow.Gone("another cluster answers at %s", was.Endpoint)
	}
	return flow.Holds()
}
