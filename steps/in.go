package steps

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// doIn is the function of a step that works in the workload cluster and takes no output.
func doIn[T any](s *Set, run func(context.Context, flow.Say, *kube.Cluster) (T, error)) flow.Work[T] {
	return flow.Do(func(ctx context.Context, say flow.Say) (none T, err error) {
		workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
		if err != nil {
			return none, err
		}
		return run(ctx, say, workload)
	})
}

// verifyIn is the Verify of a step that asks the cluster of a kubeconfig in the state folder.
func verifyIn[T any](s *Set, kubeconfig string,
	verify func(context.Context, *kube.Cluster, T) flow.Verdict) func(context.Context, T) flow.Verdict {
	return func(ctx context.Context, was T) flow.Verdict {
		c, err := connect.Cluster(s.tools, kubeconfig)
		if err != nil {
			return flow.Unknown(err)
		}
		return verify(ctx, c, was)
	}
}

// complete is the verdict of a look at a cluster: it holds where nothing is missing.
func complete(missing string, err error) flow.Verdict {
	switch {
	case err != nil:
		return kube.Verdict(err)
	case missing != "":
		return flow.Gone("%s", missing)
	}
	return flow.Holds()
}

// inNamespace selects all objects of some kinds in the namespace of the cluster's objects.
func (s *Set) inNamespace(kinds ...schema.GroupVersionKind) []kube.Selection {
	return selections(kinds, client.InNamespace(s.cfg.Namespace))
}

// ofCluster selects the cluster's own objects of some kinds.
func (s *Set) ofCluster(kinds ...schema.GroupVersionKind) []kube.Selection {
	return selections(kinds, capi.OfCluster(s.cfg.Namespace, s.cfg.ClusterName)...)
}

func selections(kinds []schema.GroupVersionKind, options ...client.ListOption) (all []kube.Selection) {
	for _, kind := range kinds {
		all = append(all, kube.Selection{List: capi.ListOf(kind), Options: options})
	}
	return all
}

// workloadsOf selects the workloads and Pods of a namespace.
func workloadsOf(namespace string) []kube.Selection {
	in := []client.ListOption{client.InNamespace(namespace)}
	return []kube.Selection{{List: &appsv1.DeploymentList{}, Options: in}, {List: &appsv1.DaemonSetList{}, Options: in},
		{List: &corev1.PodList{}, Options: in}}
}

// untilIn waits as w says, with a look at once where what is selected in a cluster changes.
func untilIn(ctx context.Context, say flow.Say, w wait.Wait, in *kube.Cluster, selected []kube.Selection,
	look func(context.Context) (missing string, err error)) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w.Changes = in.Changes(watching, selected...)
	return w.Until(ctx, say, look)
}
