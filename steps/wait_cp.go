package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
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
	return flow.Add(g, flow.Task[ControlPlane]{
		Name:     "wait-cp",
		Doc:      "servers, Talos, etcd and the Kubernetes API answer through the load balancer",
		Run:      flow.With2(s.runControlPlane, management, cluster),
		Verify:   verifyIn(s, platform.ManagementKubeconfig, s.verifyControlPlane),
		Deadline: s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg)},
	})
}

// runControlPlane waits until the Kubernetes API answers through the load balancer. It does not wait for replicas to be
// ready: those are Nodes, and none is Ready before Cilium, which needs the API. Machines that keep etcd from being
// started it deletes; see surplus.
func (s *Set) runControlPlane(ctx context.Context, say flow.Say, m Management, c Cluster) (ControlPlane, error) {
	mgmt, err := connect.Cluster(s.tools, m.Kubeconfig)
	if err != nil {
		return ControlPlane{}, err
	}
	selected := append(s.inNamespace(capi.HetznerClusterKind, capi.TalosControlPlaneKind),
		s.ofCluster(capi.MachineKind, capi.HCloudMachineKind)...)
	out := ControlPlane{Endpoint: c.Endpoint}
	spare := surplus{b: s, mgmt: mgmt, cluster: c}
	stock := stockout.Watch{Cfg: s.cfg, Tools: s.tools, Sources: s.sources, Say: say}
	w := wait.Wait{What: "the control plane", Within: s.cfg.ControlPlaneTimeout.D(), Every: wait.ControlPlaneEvery,
		Whole: true}
	err = untilIn(ctx, say, w, mgmt, selected, func(ctx context.Context) (string, error) {
		is, uid := s.observer.Observe(ctx, mgmt, c.watched(s.cfg.Namespace))
		if out.UID = uid; uid != "" { // what follows needs the API, and not that CACPPT has seen it, which takes seconds more
			return "", nil
		}
		a := s.observer.Explain(is)
		did, err := situation.DeleteUnmade(ctx, s.tools, mgmt, c.watched(s.cfg.Namespace), is)
		if did != "" || err != nil {
			return did, err
		}
		changed, lacks, err := stock.Check(ctx, mgmt)
		if err != nil || changed {
			return a.Summary(), err
		}
		busy, keeps, err := spare.look(ctx, say, is)
		if terminal := a.Terminal(s.observer.Began); terminal != nil && !busy {
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

// verifyControlPlane asks the workload cluster itself. Silence is no answer: servers restart, lines break.
func (s *Set) verifyControlPlane(ctx context.Context, mgmt *kube.Cluster, was ControlPlane) flow.Verdict {
	config, err := connect.WorkloadKubeconfig(ctx, mgmt, s.cfg.Namespace, s.cfg.ClusterName)
	if err != nil {
		return kube.Verdict(err)
	}
	workload, err := s.tools.Connect(config)
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
