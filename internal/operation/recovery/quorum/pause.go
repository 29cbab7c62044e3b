package quorum

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

const (
	// pausedAnnotation marks a pause that a recovery made, also one that was killed. Other pauses do not have it.
	pausedAnnotation = "slipway.dev/held-for-recovery"
	// replicasAnnotation is on a Deployment that a recovery has stopped: how many replicas it had.
	replicasAnnotation = "slipway.dev/replicas-before-recovery"
)

// Pause tells whether a management cluster beside the cluster was paused by the recovery.
type Pause struct {
	Paused bool `json:"paused"`
}

// pause pauses the cluster in a management cluster that is not the cluster itself: what it sees of a control plane that
// is taken apart is nothing for it to act on. Where the cluster manages itself, its controllers are as unavailable as
// its API: see quiet.
func (q inputs) pause(ctx context.Context, say flow.Say, _ etcdview.Survey) (Pause, error) {
	mgmt, cluster, err := q.beside(ctx, say)
	if err != nil || cluster == nil {
		return Pause{}, err
	}
	if connect.Paused(cluster) {
		say("the cluster is paused in the management cluster already")
		return Pause{Paused: cluster.GetAnnotations()[pausedAnnotation] != ""}, nil
	}
	say("pausing the cluster in the management cluster")
	if err := capi.Annotate(ctx, mgmt, cluster, map[string]any{pausedAnnotation: "true"}); err != nil {
		return Pause{}, err
	}
	return Pause{Paused: true}, capi.SetPaused(ctx, q.cfg, mgmt, true)
}

// beside finds the cluster's object in a management cluster beside it; nil: there is none. One that exists and does not
// answer is an error: it may act at any moment.
func (q inputs) beside(ctx context.Context, say flow.Say) (*kube.Cluster, *unstructured.Unstructured, error) {
	mgmt, _, err := connect.OpenManagement(ctx, q.cfg, q.tools, say)
	if err != nil || mgmt == nil {
		return nil, nil, err
	}
	cluster, err := connect.FindCluster(ctx, q.cfg, mgmt)
	return mgmt, cluster, err
}

// unpause removes the pause that the recovery made, and no other.
func (q inputs) unpause(ctx context.Context, say flow.Say) error {
	mgmt, cluster, err := q.beside(ctx, say)
	if err != nil {
		return err
	}
	if cluster == nil || cluster.GetAnnotations()[pausedAnnotation] == "" {
		return nil
	}
	say("unpausing the cluster in the management cluster")
	if err := capi.SetPaused(ctx, q.cfg, mgmt, false); err != nil {
		return err
	}
	if err := capi.Annotate(ctx, mgmt, cluster, map[string]any{pausedAnnotation: nil}); err != nil {
		return fmt.Errorf("unpause the cluster: %w", err)
	}
	return nil
}

// quiet stops the providers' Deployments in a cluster that manages itself, first of all the control plane provider:
// with one member of three it is not to touch Machines or etcd. No webhook guards a Deployment; one guards the object
// that could be paused.
func (q inputs) quiet(ctx context.Context, say flow.Say, _ recovery.Etcd) (recovery.Quiet, error) {
	var out recovery.Quiet
	// The survivor's API server, which still has the old etcd, is behind the load balancer, too, and answers with nothing:
	// a look has not much time, and the next one after it has another connection.
	w := wait.Wait{What: "the cluster's controllers to be stopped", Within: recovery.QuietWithin, Every: q.every,
		Each: 2 * etcdview.AskWithin}
	err := w.Until(ctx, say, func(ctx context.Context) (string, error) {
		out = recovery.Quiet{}
		workload, err := connect.Cluster(q.tools, platform.Kubeconfig)
		if err != nil {
			return "", err
		}
		providers, err := providerDeployments(ctx, workload)
		if err != nil {
			return "", err
		}
		for i := range providers {
			d := &providers[i]
			out.Deployments = append(out.Deployments, d.Namespace+"/"+d.Name)
			if d.Annotations[replicasAnnotation] != "" {
				continue
			}
			say("stopping Deployment %s/%s", d.Namespace, d.Name)
			stop := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
				`{"metadata":{"annotations":{%q:"%d"}},"spec":{"replicas":0}}`, replicasAnnotation, replicasOf(d)))
			if err := workload.Patch(ctx, d, stop); err != nil {
				return "", fmt.Errorf("stop Deployment %s/%s: %w", d.Namespace, d.Name, err)
			}
		}
		return "", nil
	})
	return out, err
}

func replicasOf(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // Kubernetes' default
	}
	return *d.Spec.Replicas
}

// providerDeployments are those of Cluster API and its providers, the control plane provider's first; none in a cluster
// that does not manage itself.
func providerDeployments(ctx context.Context, workload *kube.Cluster) ([]appsv1.Deployment, error) {
	all := &appsv1.DeploymentList{}
	if err := workload.List(ctx, all, client.HasLabels{capi.ProviderLabel}); err != nil {
		return nil, fmt.Errorf("list the providers' Deployments: %w", err)
	}
	slices.SortStableFunc(all.Items, func(a, b appsv1.Deployment) int {
		return recovery.FalseFirst(!isControlPlaneProvider(&a), !isControlPlaneProvider(&b))
	})
	return all.Items, nil
}

func isControlPlaneProvider(d *appsv1.Deployment) bool {
	return strings.HasPrefix(d.Labels[capi.ProviderLabel], "control-plane-")
}

// resume waits until every server's node is Ready, and lets Cluster API go on, wherever it is.
func (q inputs) resume(ctx context.Context, say flow.Say, h Pause, members recovery.Membership) (Pause, error) {
	var workload *kube.Cluster
	nodes := wait.Wait{What: "the servers' nodes", Within: q.cfg.NodesTimeout.D(), Every: q.every}
	err := nodes.Until(ctx, say, func(ctx context.Context) (missing string, err error) {
		if workload, err = connect.Cluster(q.tools, platform.Kubeconfig); err != nil {
			return "", err
		}
		return q.nodesMissing(ctx, workload, members)
	})
	if err != nil {
		return h, err
	}
	if err := q.wake(ctx, say, workload); err != nil {
		return h, err
	}
	if err := q.unpause(ctx, say); err != nil {
		return h, err
	}
	return h, q.unclaim(ctx)
}

// nodesMissing says which of the servers have no Ready node. Others, of servers that are gone, are Cluster API's to
// replace.
func (q inputs) nodesMissing(ctx context.Context, workload *kube.Cluster, members recovery.Membership) (string,
	error) {
	if err := workload.Ready(ctx); err != nil {
		return "", err
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return "", fmt.Errorf("list the nodes: %w", err)
	}
	var why wait.Reasons
	for _, server := range members.Members {
		i := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == server })
		if i < 0 {
			why.Add(server, "it is no node")
		} else if ready, reason := situation.NodeReady(&nodes.Items[i]); !ready {
			why.Add(server, "not Ready ("+reason+")")
		}
	}
	return strings.Join(why.Lines(), "; "), nil
}

// wake gives the providers that quiet stopped their replicas back, and waits until they serve.
func (q inputs) wake(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	w := wait.Wait{What: "Cluster API's controllers to serve", Within: q.cfg.NodesTimeout.D(), Every: q.every}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		providers, err := providerDeployments(ctx, workload)
		if err != nil {
			return "", err
		}
		var missing []string
		for i := range providers {
			d := &providers[i]
			if before := d.Annotations[replicasAnnotation]; before != "" {
				if err := start(ctx, say, workload, d, before); err != nil {
					return "", err
				}
			}
			if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < replicasOf(d) {
				missing = append(missing, fmt.Sprintf("%d of %d Pods of %s/%s are available", d.Status.AvailableReplicas,
					replicasOf(d), d.Namespace, d.Name))
			}
		}
		return strings.Join(missing, "; "), nil
	})
}

func start(ctx context.Context, say flow.Say, workload *kube.Cluster, d *appsv1.Deployment, replicas string) error {
	if _, err := strconv.ParseUint(replicas, 10, 31); err != nil {
		return wait.Final(fmt.Errorf("deployment %s/%s had %q replicas, says its annotation %s: scale it and remove that",
			d.Namespace, d.Name, replicas, replicasAnnotation))
	}
	say("starting Deployment %s/%s", d.Namespace, d.Name)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"annotations":{%q:null}},"spec":{"replicas":%s}}`, replicasAnnotation, replicas))
	if err := workload.Patch(ctx, d, patch); err != nil {
		return fmt.Errorf("start Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// claimQuorum makes sure that no other state folder recovers the cluster. Two machines that recover the quorum at once
// would choose for themselves which server survives: one would reset the server on which the other has just made the
// new etcd. What another state folder has begun is not taken over, as the snapshot, which may be the last data there
// are, is in that folder.
func (q inputs) claimQuorum(ctx context.Context, say flow.Say, _ etcdview.Survey) (steps.Reservation, error) {
	found, err := claims.Recover(ctx, q.cfg, q.tools, say, func(context.Context) (bool, error) { return false, nil })
	return recovery.Reservation(found), err
}

// unclaim gives the claim up, unless another state folder has it.
func (q inputs) unclaim(ctx context.Context) error {
	by, err := ownership.Identity(q.tools)
	if err != nil {
		return err
	}
	return claims.GiveUpRecovery(ctx, q.cfg, q.tools, by)
}
