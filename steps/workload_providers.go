package steps

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/platform"
)

// WorkloadProviders adds the step providers to a graph: the pivot's target has Cluster API and its providers. It runs
// while the nodes come up; the controllers have nothing to do before the pivot brings the objects.
func (s *Set) WorkloadProviders(g *flow.Graph, kubeconfig *flow.Step[Kubeconfig]) *flow.Step[Providers] {
	return flow.Add(g, flow.Task[Providers]{
		Name:     "providers",
		Doc:      "Cluster API and its providers are installed in the cluster itself, which the pivot needs",
		Run:      flow.With1(s.runWorkloadProviders, kubeconfig),
		Spec:     s.made.providers,
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyProviders),
		Deadline: 2*withNodes(s.cfg).ProvidersTimeout.D() + wait.Overhead,
		Waits:    s.made.installingInWorkload,
	})
}

// withNodes gives an installation of the providers the time that the first node may take as well: until then none of
// their Pods starts.
func withNodes(cfg config.Config) config.Config {
	cfg.ProvidersTimeout += cfg.NodesTimeout
	return cfg
}

// runWorkloadProviders installs the providers, and ends early where no node comes that could run their Pods.
func (s *Set) runWorkloadProviders(ctx context.Context, say flow.Say, kc Kubeconfig) (Providers, error) {
	workload, err := connect.Cluster(s.tools, kc.File)
	if err != nil {
		return Providers{}, err
	}
	installing, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		if err := s.awaitNodeForPods(installing, say, workload); err != nil {
			stop(err)
		}
	})
	err = capiinit.Install(installing, withNodes(s.cfg), s.tools, s.sources, say, kc.File)
	noNode := context.Cause(installing)
	stop(nil)
	watching.Wait()
	if err != nil && noNode != nil && ctx.Err() == nil {
		return Providers{}, fmt.Errorf("install the providers: %w", noNode)
	}
	return Providers{Versions: capi.ProviderVersions(s.cfg)}, err
}

// awaitNodeForPods waits until a node is Ready and Pods without special tolerations may start on it.
func (s *Set) awaitNodeForPods(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	w := wait.Wait{What: "a node that takes Pods", Within: s.cfg.NodesTimeout.D()}
	return untilIn(ctx, say, w, workload, []kube.Selection{{List: &corev1.NodeList{}}},
		func(ctx context.Context) (string, error) {
			nodes := &corev1.NodeList{}
			if err := workload.List(ctx, nodes); err != nil {
				return "", fmt.Errorf("list the nodes: %w", err)
			}
			if len(nodes.Items) == 0 {
				return "there is no node yet", nil
			}
			var why wait.Reasons
			for i := range nodes.Items {
				reason := takesNoPods(&nodes.Items[i])
				if reason == "" {
					return "", nil
				}
				why.Add(nodes.Items[i].Name, reason)
			}
			return strings.Join(why.Lines(), "; "), nil
		})
}

// takesNoPods says why no Pod without special tolerations starts on a node; empty: one does.
func takesNoPods(n *corev1.Node) string {
	if ready, why := situation.NodeReady(n); !ready {
		return fmt.Sprintf("not Ready (%s)", why)
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule {
			return "has the taint " + t.Key
		}
	}
	return ""
}
