package restore

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// add adds the step release to a graph.
func (r releaseStep) add(g *flow.Graph, management *flow.Step[steps.Management],
	cluster *flow.Step[steps.Cluster]) *flow.Step[steps.Cluster] {
	return flow.Add(g, flow.Task[steps.Cluster]{
		Name:     "release",
		Doc:      "the control plane provider reconciles again, and has seen that etcd is bootstrapped",
		Run:      flow.With2(r.releaseControlPlane, management, cluster),
		Spec:     r.source.Identity(),
		Verify:   r.verifyRelease,
		Deadline: r.deadline(),
		Waits:    []flow.Wait{wait.ControlPlane(r.cfg)},
	})
}

// releaseControlPlane removes what was set in the control plane's status, so that the provider looks itself: it lists
// etcd's folder on the servers, finds data and concludes that etcd is bootstrapped. On servers without data it would
// bootstrap one, so this is done only while every one of them has some.
func (r releaseStep) releaseControlPlane(ctx context.Context, say flow.Say, m steps.Management,
	c steps.Cluster) (steps.Cluster, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Cluster{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching, kube.Selection{List: capi.ListOf(capi.TalosControlPlaneKind),
		Options: []client.ListOption{client.InNamespace(r.cfg.Namespace)}})
	released := false
	w := wait.Wait{What: "the control plane provider to see the restored etcd", Within: r.cfg.ControlPlaneTimeout.D(),
		Changes: changes}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		tcp, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, c.ControlPlane)
		if err != nil {
			return "", err
		}
		if capi.ConditionTrue(tcp, recovery.BootstrappedCondition) {
			return "", nil
		}
		if !released {
			if err := r.release(ctx, say, mgmt, c, tcp); err != nil {
				return "", err
			}
			released = true
		}
		if t := why.Said(tcp); t != "" {
			return t, nil
		}
		return "it has not looked yet", nil
	})
	return c, err
}

func (r releaseStep) release(ctx context.Context, say flow.Say, mgmt *kube.Cluster, c steps.Cluster,
	tcp *unstructured.Unstructured) error {
	_, nodes, err := etcdview.AskMachines(ctx, r.tools, mgmt, r.cfg.Namespace, c.Name, c.LoadBalancerIP)
	if err != nil {
		return err
	}
	if missing := etcdview.Unanswered(nodes, c.Replicas); missing != "" {
		return errors.New(missing)
	}
	if has := etcdview.WithData(nodes); len(has) != len(nodes) {
		return wait.Final(fmt.Errorf("of %d servers %d hold data of etcd: the control plane provider is not "+
			"released, because it might bootstrap another etcd", len(nodes), len(has)))
	}
	say("letting the control plane provider look for itself")
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"bootstrapped":false}}`))
	if err := mgmt.Status().Patch(ctx, tcp.DeepCopy(), patch); err != nil {
		return fmt.Errorf("set status.bootstrapped of %s: %w", kube.Describe(tcp), err)
	}
	return nil
}

func (r releaseStep) verifyRelease(ctx context.Context, was steps.Cluster) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	tcp, err := capi.Get(ctx, mgmt, r.cfg.Namespace, capi.TalosControlPlaneKind, was.ControlPlane)
	if err != nil {
		return kube.Verdict(err)
	}
	if !capi.ConditionTrue(tcp, recovery.BootstrappedCondition) {
		return flow.Gone("the control plane provider does not call %s bootstrapped", was.ControlPlane)
	}
	return flow.Holds()
}
