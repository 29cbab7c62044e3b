package restore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/steps"
)

const (
	sweepWithin = 10 * time.Minute
)

// SilenceSnapshot takes the Cluster API of the time of a snapshot out of it, where the cluster managed itself: its
// objects describe servers that are gone, and its CAPH would create every one of them again as soon as a node takes its
// Pod, whichever request comes first. The names of its Deployments are returned.
func SilenceSnapshot(s backup.Cluster) ([]string, error) {
	if !s.Contents.Header.SelfManaged {
		return nil, nil
	}
	return etcd.Silence(s.Snapshot, capi.ProviderLabel)
}

// quietStale stops what of the Cluster API of the time of the snapshot SilenceSnapshot could not take out of it, and
// removes its webhooks, which no Pod answers. Its Pods cannot run before a node takes them: those that the snapshot
// knows are gone, and it takes minutes until they are replaced. So this is the first thing that is done to a restored
// cluster.
func (r inputs) quietStale(ctx context.Context, say flow.Say, kc steps.Kubeconfig, _ recovery.Etcd) (recovery.Quiet,
	error) {
	workload, err := connect.Cluster(r.tools, kc.File)
	if err != nil {
		return recovery.Quiet{}, err
	}
	var out recovery.Quiet
	w := wait.Wait{What: "the cluster's old controllers to be stopped", Within: recovery.QuietWithin}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		out = recovery.Quiet{}
		if stale, err := r.hasStaleObjects(ctx, workload); err != nil || !stale {
			return "", err
		}
		if out.Deployments, err = stopDeployments(ctx, say, workload); err != nil {
			return "", err
		}
		return "", removeWebhooks(ctx, say, workload)
	})
	return out, err
}

// hasStaleObjects tells whether the restored cluster has Cluster API objects of its own that are of the time of the
// snapshot, and not those that this restore has moved into it since.
func (r inputs) hasStaleObjects(ctx context.Context, workload *kube.Cluster) (bool, error) {
	cluster, err := connect.FindCluster(ctx, r.cfg, workload)
	if err != nil {
		return false, err
	}
	if cluster == nil {
		return r.source.Contents.Header.SelfManaged, nil
	}
	return cluster.GetAnnotations()[capi.RestoredAnnotation] != r.source.Identity().Snapshot, nil
}

// stopDeployments scales the providers down. No webhook guards a Deployment; one guards the objects that could be
// paused.
func stopDeployments(ctx context.Context, say flow.Say, workload *kube.Cluster) (stopped []string, err error) {
	all := &appsv1.DeploymentList{}
	if err := workload.List(ctx, all, client.HasLabels{capi.ProviderLabel}); err != nil {
		return nil, fmt.Errorf("list the providers' Deployments: %w", err)
	}
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	for i := range all.Items {
		d := &all.Items[i]
		stopped = append(stopped, d.Namespace+"/"+d.Name)
		if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
			continue
		}
		say("stopping Deployment %s/%s", d.Namespace, d.Name)
		if err := workload.Patch(ctx, d, none); err != nil {
			return nil, fmt.Errorf("stop Deployment %s/%s: %w", d.Namespace, d.Name, err)
		}
	}
	slices.Sort(stopped)
	return stopped, nil
}

// removeWebhooks takes the webhooks of controllers that do not run away: nothing could be changed, or deleted,
// otherwise. They come back with the providers.
func removeWebhooks(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	mutating, validating := &admissionv1.MutatingWebhookConfigurationList{},
		&admissionv1.ValidatingWebhookConfigurationList{}
	if err := workload.List(ctx, mutating, client.HasLabels{capi.ProviderLabel}); err != nil {
		return fmt.Errorf("list mutating webhooks: %w", err)
	}
	if err := workload.List(ctx, validating, client.HasLabels{capi.ProviderLabel}); err != nil {
		return fmt.Errorf("list validating webhooks: %w", err)
	}
	var hooks []client.Object
	for i := range mutating.Items {
		hooks = append(hooks, &mutating.Items[i])
	}
	for i := range validating.Items {
		hooks = append(hooks, &validating.Items[i])
	}
	for _, h := range hooks {
		say("removing the webhooks %s", h.GetName())
		if err := client.IgnoreNotFound(workload.Delete(ctx, h)); err != nil {
			return fmt.Errorf("delete the webhooks %s: %w", h.GetName(), err)
		}
	}
	return nil
}

// sweepStale removes the objects and nodes of servers that are gone, and gives the cloud controller manager the network
// and the token of today before the Pods of the old nodes start on the new ones.
func (r inputs) sweepStale(ctx context.Context, say flow.Say, kc steps.Kubeconfig, m steps.Management,
	c steps.Cluster) (recovery.Sweep,
	error) {
	workload, err := connect.Cluster(r.tools, kc.File)
	if err != nil {
		return recovery.Sweep{}, err
	}
	var out recovery.Sweep
	w := wait.Wait{What: "the restored cluster to take what is changed in it", Within: sweepWithin, Each: 2 * time.Minute}
	err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
		if err := r.renewCCMSecret(ctx, say, workload); err != nil {
			return "", err
		}
		stale, err := r.hasStaleObjects(ctx, workload)
		if err != nil {
			return "", err
		}
		if stale {
			if out.Paused, err = r.pauseOthers(ctx, say, workload); err != nil {
				return "", err
			}
			if out.Objects, err = r.sweepObjects(ctx, say, workload); err != nil {
				return "", err
			}
		}
		out.Nodes, err = r.sweepNodes(ctx, say, workload)
		return "", err
	})
	return out, err
}

// renewCCMSecret rewrites the Secret of the Hetzner cloud controller manager, where the cluster has one: its network is
// another one now, unless that survived, and the token may be.
func (r inputs) renewCCMSecret(ctx context.Context, say flow.Say, workload *kube.Cluster) error {
	namespace := render.HCloudCCMChart(r.cfg, r.sources).Namespace
	is := &corev1.Secret{}
	err := workload.Get(ctx, client.ObjectKey{Namespace: namespace, Name: config.CCMSecretName}, is)
	if kube.Absent(err) {
		return nil // the snapshot is older than the release; `bootstrap` makes both
	}
	if err != nil {
		return fmt.Errorf("get Secret %s/%s: %w", namespace, config.CCMSecretName, err)
	}
	network, err := hetzner.NetworkID(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return err
	}
	if network == 0 {
		return fmt.Errorf("cluster %s has no network at Hetzner: its HetznerCluster says why", r.cfg.ClusterName)
	}
	say("writing Secret %s/%s for network %d", namespace, config.CCMSecretName, network)
	_, err = apply.CloudControllerSecret(ctx, r.cfg, r.tools, say, workload, namespace, network)
	return err
}

// pauseOthers pauses the clusters that the restored one manages besides itself. They still exist, and what is known of
// them here is of the time of the snapshot: the providers that the pivot installs would create servers again that were
// removed since, and evict members of etcd that came since. Only a person can tell when that is over.
func (r inputs) pauseOthers(ctx context.Context, say flow.Say, workload *kube.Cluster) (others []string, err error) {
	all, err := capi.Clusters(ctx, workload)
	if err != nil {
		return nil, err
	}
	pause := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`))
	for i := range all {
		o := &all[i]
		if o.GetNamespace() == r.cfg.Namespace && o.GetName() == r.cfg.ClusterName {
			continue
		}
		name := o.GetNamespace() + "/" + o.GetName()
		others = append(others, name)
		if connect.Paused(o) {
			continue
		}
		say("note: pausing cluster %s, which this one manages, too: its objects are of the time of the backup. Compare "+
			"them with its servers, then unpause it (spec.paused)", name)
		if err := workload.Patch(ctx, o, pause); err != nil {
			return nil, fmt.Errorf("pause cluster %s, whose objects are out of date: %w", name, err)
		}
	}
	slices.Sort(others)
	return others, nil
}

// sweepObjects removes the cluster's objects of Cluster API, without their controllers' help and without their
// finalizers: nothing at Hetzner is touched. The providers go too, so that the pivot installs them whole.
func (r inputs) sweepObjects(ctx context.Context, say flow.Say, workload *kube.Cluster) (int, error) {
	if _, err := stopDeployments(ctx, say, workload); err != nil {
		return 0, err
	}
	inv, err := capi.ReadInventory(ctx, workload, r.cfg.Namespace)
	if err != nil {
		return 0, err
	}
	// The Cluster last: while it is there, the next run knows that this one was interrupted here.
	objects := inv.Of(r.cfg.ClusterName)
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int {
		return recovery.FalseFirst(a.GetKind() == capi.ClusterKind.Kind, b.GetKind() == capi.ClusterKind.Kind)
	})
	for i := range objects {
		say("removing the stale %s", capi.ObjectKeyOf(&objects[i]))
		if err := apply.RemoveCopy(ctx, workload, &objects[i]); err != nil {
			return 0, err
		}
	}
	return len(objects), recovery.RemoveProviders(ctx, say, workload)
}

// sweepNodes removes the nodes of servers that are gone, and their Pods, which are started on the new nodes then:
// Kubernetes by itself waits a minute, in case a node returns. A node whose provider ID is not of
// Hetzner Cloud (a dedicated server, say) may exist, with Pods running on it, and is left alone.
func (r inputs) sweepNodes(ctx context.Context, say flow.Say, workload *kube.Cluster) ([]string, error) {
	servers, err := hetzner.Servers(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{"": true} // a Pod of no node waits for one
	for _, s := range servers {
		alive[s.Name] = true
	}
	all := &corev1.NodeList{}
	if err := workload.List(ctx, all); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	var gone []string
	for i := range all.Items {
		n := &all.Items[i]
		if alive[n.Name] {
			continue
		}
		if id := n.Spec.ProviderID; id != "" && !strings.HasPrefix(id, capi.HCloudProviderPrefix) {
			say("note: node %s (%s) is no server of the Hetzner Cloud: it is left as it is, with its Pods", n.Name, id)
			alive[n.Name] = true
			continue
		}
		if err := apply.RemoveNode(ctx, say, workload, n); err != nil {
			return nil, err
		}
		gone = append(gone, n.Name)
	}
	slices.Sort(gone)
	return gone, sweepPods(ctx, say, workload, alive)
}

// sweepPods deletes the Pods of nodes that are not alive without waiting for a kubelet to end them.
func sweepPods(ctx context.Context, say flow.Say, workload *kube.Cluster, alive map[string]bool) error {
	pods := &corev1.PodList{}
	if err := workload.List(ctx, pods); err != nil {
		return fmt.Errorf("list the Pods: %w", err)
	}
	dead := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return alive[p.Spec.NodeName] })
	if err := apply.EndPods(ctx, workload, dead); err != nil {
		return err
	}
	if len(dead) > 0 {
		say("removed %d Pods of nodes that are gone", len(dead))
	}
	return nil
}
