package readopt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/internal/ensure/pivot"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// manageAgain makes or finds the cluster that the objects go to.
func (r inputs) manageAgain(ctx context.Context, say flow.Say) (steps.Management, error) {
	if !r.itself() {
		m, err := connect.EnsureManagement(ctx, r.cfg, r.tools, say)
		return steps.Management{Provider: m.Provider, Name: m.Name, Kubeconfig: platform.ManagementKubeconfig, UID: m.UID},
			err
	}
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return steps.Management{}, err
	}
	uid, err := workload.UID(ctx)
	return steps.Management{Provider: "itself", Name: r.cfg.ClusterName, Kubeconfig: platform.Kubeconfig, UID: uid}, err
}

// verifyManager asks who answers there.
func (r inputs) verifyManager(ctx context.Context, m steps.Management) flow.Verdict {
	if !r.itself() {
		return connect.VerifyManagement(ctx, r.tools, ownership.Management{Provider: m.Provider, Name: m.Name, UID: m.UID})
	}
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	uid, err := workload.UID(ctx)
	if err == nil && uid == m.UID {
		return flow.Holds()
	}
	return flow.Unknown(fmt.Errorf("cluster %s: UID %q: %w", m.Name, uid, err))
}

// removeGone removes the nodes of servers that are gone and were accepted to be, and ends their Pods: in a cluster that
// manages itself its controllers may be among them.
func (r inputs) removeGone(ctx context.Context, say flow.Say, d Comparison) (recovery.Sweep, error) {
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return recovery.Sweep{}, err
	}
	for _, name := range d.Gone {
		node := &corev1.Node{}
		if err := workload.Get(ctx, client.ObjectKey{Name: name}, node); kube.Absent(err) {
			continue
		} else if err != nil {
			return recovery.Sweep{}, fmt.Errorf("get node %s: %w", name, err)
		}
		if err := r.refuseNodeOfLiving(ctx, node); err != nil {
			return recovery.Sweep{}, err
		}
		if err := apply.FreePods(ctx, r.tools, say, workload, name); err != nil {
			return recovery.Sweep{}, err
		}
		if err := apply.RemoveNode(ctx, say, workload, node); err != nil {
			return recovery.Sweep{}, err
		}
	}
	return recovery.Sweep{Nodes: d.Gone}, nil
}

// refuseNodeOfLiving asks Hetzner for the server itself, in case that it only lost its labels: a node that works is not
// removed.
func (r inputs) refuseNodeOfLiving(ctx context.Context, node *corev1.Node) error {
	id := node.Spec.ProviderID
	for _, m := range r.source.Machines() {
		if id == "" && m.Server == node.Name && m.ServerID != 0 {
			id = hetzner.Server{ID: m.ServerID}.ProviderID()
		}
	}
	if id == "" {
		return nil // its server was never known by more than its name, and by that it is not there
	}
	gone, err := hetzner.ServerGone(ctx, r.tools.Hetzner, id)
	if err != nil || gone {
		return err
	}
	return fmt.Errorf("node %s is not removed: its server (%s) lives, without the labels of cluster %s. Label it again, "+
		"or delete it, and run again", node.Name, id, r.cfg.ClusterName)
}

// installAgain installs Cluster API and its providers, also where their list says that they are installed and their
// kinds are gone.
func (r inputs) installAgain(ctx context.Context, say flow.Say, m steps.Management) (steps.Providers, error) {
	target, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Providers{}, err
	}
	installed, err := capi.InstalledProviders(ctx, target)
	if err != nil && !kube.Absent(err) {
		return steps.Providers{}, err
	}
	if len(installed) > 0 {
		for _, o := range r.source.All() {
			if err := target.List(ctx, capi.ListOf(o.GroupVersionKind()), client.Limit(1)); kube.Absent(err) {
				say("%ss are not known any more, though the providers are installed: they are installed again", o.GetKind())
				if err := recovery.RemoveProviders(ctx, say, target); err != nil {
					return steps.Providers{}, err
				}
				break
			} else if err != nil {
				return steps.Providers{}, fmt.Errorf("list %ss: %w", o.GetKind(), err)
			}
		}
	}
	return steps.Providers{Versions: capi.ProviderVersions(r.cfg)},
		capiinit.Install(ctx, r.cfg, r.tools, r.sources, say, m.Kubeconfig)
}

// putBack puts the objects back, their Cluster paused from the first moment, so that no controller acts on any of them.
func (r inputs) putBack(ctx context.Context, say flow.Say, m steps.Management, d Comparison) (steps.Cluster, error) {
	target, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Cluster{}, err
	}
	objects, err := r.returning(d)
	if err != nil {
		return steps.Cluster{}, err
	}
	cluster, err := connect.FindCluster(ctx, r.cfg, target)
	if err != nil {
		return steps.Cluster{}, err
	}
	// Once it is unpaused it is the controllers' again, and nothing of it is put back a second time.
	if cluster == nil || connect.Paused(cluster) {
		if err := r.makeRoom(ctx, say, target, cluster != nil, objects, d); err != nil {
			return steps.Cluster{}, err
		}
		if err := apply.Namespace(ctx, r.cfg, say, target); err != nil {
			return steps.Cluster{}, err
		}
		for i, o := range objects {
			say("putting back %s (%d of %d)", capi.ObjectKeyOf(o), i+1, len(objects))
			if err := r.put(ctx, say, target, o); err != nil {
				return steps.Cluster{}, err
			}
		}
		if err := r.tellControlPlane(ctx, say, target); err != nil {
			return steps.Cluster{}, err
		}
	}
	ip, _ := r.source.Endpoint()
	return recovery.DescribeCluster(ctx, r.cfg, target, objects, ip)
}

// renewToken writes today's Hetzner token over the backup's.
func (r inputs) renewToken(ctx context.Context, say flow.Say, m steps.Management) (steps.TokenSecret, error) {
	target, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.TokenSecret{}, err
	}
	uid, err := apply.Token(ctx, r.cfg, r.tools, say, target)
	return steps.TokenSecret{Namespace: r.cfg.Namespace, Name: config.TokenSecretName, UID: uid}, err
}

// makeRoom removes leftovers that were accepted to be replaced, and what an earlier run put there and that is not to be
// there any more, since something more was accepted.
func (r inputs) makeRoom(ctx context.Context, say flow.Say, target *kube.Cluster, begun bool,
	objects []*unstructured.Unstructured, d Comparison) error {
	inv := capi.Inventory{}
	var err error
	if begun {
		if inv, err = capi.ReadInventory(ctx, target, r.cfg.Namespace); err != nil {
			return err
		}
	}
	remove := func(o *unstructured.Unstructured, why string) error {
		say("removing %s, %s, without its finalizers", capi.ObjectKeyOf(o), why)
		return apply.RemoveCopy(ctx, target, o)
	}
	for _, o := range inv.Of(r.cfg.ClusterName) {
		key := capi.ObjectKeyOf(&o)
		wanted := slices.ContainsFunc(objects, func(w *unstructured.Unstructured) bool { return capi.ObjectKeyOf(w) == key })
		if !wanted && r.isBacked(key) {
			if err := remove(&o, "which is left out"); err != nil {
				return err
			}
		}
	}
	for _, o := range r.source.All() {
		i := slices.IndexFunc(d.Left, func(l Leftover) bool { return l.matches(capi.ObjectKeyOf(o)) })
		if i < 0 {
			continue
		}
		is, err := apply.ReadCopied(ctx, target, o)
		if err != nil {
			return err
		}
		if is != nil && is.GetUID() == d.Left[i].UID {
			if err := remove(is, "which was left there"); err != nil {
				return err
			}
		}
	}
	return nil
}

// isBacked tells whether the backup has an object.
func (r inputs) isBacked(key capi.ObjectKey) bool {
	return slices.ContainsFunc(r.source.All(), func(o *unstructured.Unstructured) bool {
		return capi.ObjectKeyOf(o) == key
	})
}

// put makes an object where it is not there yet, waiting while the webhooks do not answer.
func (r inputs) put(ctx context.Context, say flow.Say, target *kube.Cluster, o *unstructured.Unstructured) error {
	w := wait.Wait{What: "the webhooks for " + kube.Describe(o), Within: r.cfg.LoadBalancerTimeout.D()}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		is, err := apply.ReadCopied(ctx, target, o)
		if err != nil || is != nil {
			return "", err
		}
		err = apply.CreateCopy(ctx, target, o)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err):
			return "", nil
		case kube.WebhookDown(err):
			return "", err
		}
		return "", wait.Final(err)
	})
}

// tellControlPlane gives the TalosControlPlane what it must know before it is looked at: that its etcd is bootstrapped,
// also as the condition that the provider sets only when it bootstraps one.
func (r inputs) tellControlPlane(ctx context.Context, say flow.Say, target *kube.Cluster) error {
	was := r.source.ControlPlane()
	tcp, err := capi.Get(ctx, target, r.cfg.Namespace, capi.TalosControlPlaneKind, was.GetName())
	if err != nil {
		return err
	}
	if capi.Truth(tcp, "status", "bootstrapped") {
		return nil
	}
	status := map[string]any{"bootstrapped": true}
	conditions, _, _ := unstructured.NestedSlice(was.Object, "status", "conditions")
	if i := slices.IndexFunc(conditions,
		func(c any) bool { return c.(map[string]any)["type"] == recovery.BootstrappedCondition }); i >= 0 {
		status["conditions"] = []any{conditions[i]}
	}
	told, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = recovery.SetBootstrapped(ctx, say, target, tcp, string(told))
	return err
}

// unpause compares once more, every object with the backup and the backup with the cluster, and then unpauses the
// controllers.
func (r inputs) unpause(ctx context.Context, say flow.Say, m steps.Management, d Comparison) (steps.Pivot, error) {
	target, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Pivot{}, err
	}
	cluster, err := capi.Get(ctx, target, r.cfg.Namespace, capi.ClusterKind, r.cfg.ClusterName)
	if err != nil {
		return steps.Pivot{}, err
	}
	out := steps.Pivot{Cluster: string(cluster.GetUID()), Servers: d.Servers}
	if !connect.Paused(cluster) {
		say("%s is unpaused already", kube.Describe(cluster))
		return out, nil
	}
	objects, err := r.returning(d)
	if err != nil {
		return steps.Pivot{}, err
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Secret" && o.GetName() == config.TokenSecretName
	})
	if r.source.Contents.Header.FromServers {
		if objects, err = r.completed(ctx, say, target, objects); err != nil {
			return steps.Pivot{}, err
		}
	}
	say("comparing every object with the backup")
	wrong, err := apply.RepairCopies(ctx, say, target, objects)
	if err != nil {
		return steps.Pivot{}, err
	}
	if len(wrong) > 0 {
		return steps.Pivot{}, fmt.Errorf("what was put back is not what the backup has: %s; the cluster stays paused. "+
			"Put right what differs, and run again", strings.Join(wrong, "; "))
	}
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return steps.Pivot{}, err
	}
	if _, err := r.judge(ctx, workload, Orphan{Paused: true}); err != nil {
		return steps.Pivot{}, fmt.Errorf("%w; the cluster stays paused", err)
	}
	say("unpausing cluster %s: from here on it is managed again", r.cfg.ClusterName)
	return out, capi.SetPaused(ctx, r.cfg, target, false)
}

// completed are objects that were made from the servers with what the API server and the webhooks make of them: as they
// would be if they were written over those that are there. Nothing is written. What only those have is no difference,
// and one that could not be written stays as it is.
func (r inputs) completed(ctx context.Context, say flow.Say, target *kube.Cluster,
	objects []*unstructured.Unstructured) (all []*unstructured.Unstructured, err error) {
	for _, was := range objects {
		written := was.DeepCopy()
		written.Object["metadata"] = map[string]any{"labels": was.GetLabels(), "annotations": was.GetAnnotations()}
		patch, err := json.Marshal(written.Object)
		if err != nil {
			return nil, err
		}
		o := was
		w := wait.Wait{What: "the webhooks for " + kube.Describe(was), Within: r.cfg.LoadBalancerTimeout.D()}
		err = w.Until(ctx, say, func(ctx context.Context) (string, error) {
			is, err := apply.ReadCopied(ctx, target, was)
			if err != nil || is == nil {
				return "", err
			}
			err = target.Patch(ctx, is, client.RawPatch(types.MergePatchType, patch), client.DryRunAll)
			switch {
			case err == nil:
				is.SetOwnerReferences(was.GetOwnerReferences())
				o = is
			case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
				return "", nil
			case !kube.WebhookDown(err):
				err = wait.Final(fmt.Errorf("compare %s with what it was made as: %w", kube.Describe(was), err))
			}
			return "", err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// reconcile waits until the controllers have looked at everything, and verifies that they keep every server.
func (r inputs) reconcile(ctx context.Context, say flow.Say, m steps.Management, d Comparison) (steps.Pivot, error) {
	target, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return steps.Pivot{}, err
	}
	within := r.cfg.NodesTimeout.D()
	if d.Made > 0 || d.Rolling {
		within += r.cfg.ControlPlaneTimeout.D()
	}
	uid, servers, err := pivot.AwaitReconciled(ctx, r.cfg, r.tools, r.observer, say, target, within, d.untouched)
	return steps.Pivot{Cluster: uid, Servers: servers}, err
}

// untouched says which servers came or went against what was said.
func (d Comparison) untouched(now []int64) error {
	if d.Rolling || d.Servers == nil {
		return nil
	}
	var gone, made []int64
	for _, id := range d.Servers {
		if !slices.Contains(now, id) {
			gone = append(gone, id)
		}
	}
	for _, id := range now {
		if !slices.Contains(d.Servers, id) && !slices.Contains(d.Others, id) {
			made = append(made, id)
		}
	}
	if len(gone) > 0 || len(made) > d.Made {
		return fmt.Errorf("the servers changed: %v of before are gone, %v are new, where %d were to be made: pause the "+
			"Cluster object (spec.paused) and see which Machine they belong to",
			gone, made, d.Made)
	}
	return nil
}
