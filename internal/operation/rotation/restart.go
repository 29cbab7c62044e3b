package rotation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

const (
	// authorityAnnotation is on the Pod template of each workload that a rotation has restarted: the fingerprint of the
	// Kubernetes API's new authority.
	authorityAnnotation = "slipway.dev/cluster-ca"
	// restartWithin is how long the restart of all workloads may take: they are restarted as their own strategy says,
	// with a grace period of half a minute for each Pod by default.
	restartWithin = time.Hour
	// roomAfter is how long a new Pod that no node has room for waits before an old one of the same workload makes
	// room.
	roomAfter = 20 * time.Second
)

// Workloads are those that were restarted, and what was not.
type Workloads struct {
	Restarted []kube.Workload `json:"restarted"`
	Left      []string        `json:"left,omitempty"` // Pods and workloads, as "namespace/name"
}

// restart restarts what uses the Kubernetes API once Pods get the new authority, and waits until what was ready before
// the rotation is so again.
func (in inputs) restart(ctx context.Context, say flow.Say, made Made) (Workloads, error) {
	c, a, err := in.opened(ctx, say, made)
	if err != nil {
		return Workloads{}, err
	}
	if err := in.awaitPublished(ctx, say, c, a); err != nil {
		return Workloads{}, err
	}
	var found clients
	err = wait.Retry(ctx, say, "what uses the Kubernetes API", func() (err error) {
		found, err = findClients(ctx, c.workload)
		return err
	})
	if err != nil {
		return Workloads{}, err
	}
	r := restarter{workload: c.workload, mark: fingerprint(a.kubernetes.new.Crt), ends: time.Now().Add(restartWithin),
		within: in.cfg.ReleaseTimeout.D(), unready: made.Unready}
	var failed []error
	for rest := found.workloads; len(rest) > 0; {
		next := slices.IndexFunc(rest, func(w kube.Workload) bool {
			return order(w) != order(rest[0]) || w.Namespace != rest[0].Namespace
		})
		if next < 0 {
			next = len(rest)
		}
		if err := r.together(ctx, say, rest[:next]); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil {
			break
		}
		rest = rest[next:]
	}
	if err := errors.Join(failed...); err != nil {
		return Workloads{}, fmt.Errorf("%w. All others were restarted, and the old authorities are still accepted. "+
			"Mend it, delete its Pods, or scale it to 0, and run again", err)
	}
	return Workloads{Restarted: found.workloads, Left: found.left}, nil
}

// awaitPublished waits until new Pods of every namespace get the new authority.
func (in inputs) awaitPublished(ctx context.Context, say flow.Say, c clusters, a authorities) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := wait.Wait{What: "kube-controller-manager to publish the new authority to Pods",
		Within:  in.cfg.NodesTimeout.D(),
		Changes: c.workload.Changes(watching, kube.Selection{List: &corev1.ConfigMapList{}})}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		namespaces, maps := &corev1.NamespaceList{}, &corev1.ConfigMapList{}
		if err := c.workload.List(ctx, namespaces); err != nil {
			return "", fmt.Errorf("list the namespaces: %w", err)
		}
		if err := c.workload.List(ctx, maps); err != nil {
			return "", fmt.Errorf("list the ConfigMaps: %w", err)
		}
		has := map[string]bool{}
		for _, m := range maps.Items {
			has[m.Namespace] = has[m.Namespace] ||
				m.Name == rootCA && same([]byte(m.Data[rootCAKey]), a.kubernetes.new.Crt)
		}
		var lacks []string
		for _, n := range namespaces.Items {
			if n.DeletionTimestamp == nil && !has[n.Name] {
				lacks = append(lacks, n.Name)
			}
		}
		if len(lacks) > 0 {
			return fmt.Sprintf("ConfigMap %s does not have it in %s", rootCA, strings.Join(lacks, ", ")), nil
		}
		return "", nil
	})
}

// restarter restarts workloads.
type restarter struct {
	workload *kube.Cluster
	mark     string // of those that were restarted, see authorityAnnotation
	ends     time.Time
	within   time.Duration   // for the workloads of one namespace
	unready  []kube.Workload // that nothing waits for
}

// together restarts workloads of one namespace, those that were not restarted for this authority, and waits for them.
func (r restarter) together(ctx context.Context, say flow.Say, all []kube.Workload) error {
	for _, w := range all {
		if err := r.one(ctx, say, w); err != nil {
			return err
		}
	}
	namespace := all[0].Namespace
	waited := slices.DeleteFunc(slices.Clone(all), func(w kube.Workload) bool { return slices.Contains(r.unready, w) })
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := r.workload.Changes(watching, kube.Selection{List: &corev1.PodList{},
		Options: []client.ListOption{client.InNamespace(namespace)}})
	return wait.Wait{What: "the workloads in " + namespace + " after their restart",
		Within:  min(r.within, time.Until(r.ends)),
		Changes: changes}.Until(ctx, say, func(ctx context.Context) (string, error) {
		lacks, err := r.workload.Unready(ctx, waited...)
		if err != nil || lacks == "" {
			return "", err
		}
		blocked, err := r.makeRoom(ctx, say, namespace)
		return wait.Sentences(lacks, blocked), err
	})
}

// one does as kubectl rollout restart does.
func (r restarter) one(ctx context.Context, say flow.Say, w kube.Workload) error {
	o, template := object(w)
	err := r.workload.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Name}, o)
	if kube.Absent(err) || err == nil && template().Annotations[authorityAnnotation] == r.mark {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read %s in namespace %s: %w", w, w.Namespace, err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{authorityAnnotation: r.mark}}}}})
	if err != nil {
		return err
	}
	say("restarting %s in namespace %s, whose Pods trust the old authority alone", w, w.Namespace)
	if err := r.workload.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil && !kube.Absent(err) {
		return fmt.Errorf("restart %s in namespace %s: %w", w, w.Namespace, err)
	}
	return nil
}

// makeRoom evicts an old Pod of a Deployment whose new one no node has room for, because the old one is on the only
// node that fits, with a host port or by anti-affinity: its rolling update would wait for ever. It evicts none while
// another of the same Deployment is on its way out. It says what keeps it from that.
func (r restarter) makeRoom(ctx context.Context, say flow.Say, namespace string) (blocked string, err error) {
	pods := &corev1.PodList{}
	if err := r.workload.List(ctx, pods, client.InNamespace(namespace)); err != nil {
		return "", fmt.Errorf("list the Pods of namespace %s: %w", namespace, err)
	}
	all, err := ownersOf(ctx, r.workload)
	if err != nil {
		return "", err
	}
	type deployment struct {
		old              *corev1.Pod
		waiting, leaving bool
	}
	of := map[types.UID]*deployment{}
	for i := range pods.Items {
		p := &pods.Items[i]
		owner := all.of(p)
		if owner == nil || owner.Kind != "Deployment" {
			continue
		}
		d := of[owner.UID]
		if d == nil {
			d = &deployment{}
			of[owner.UID] = d
		}
		switch {
		case p.DeletionTimestamp != nil:
			d.leaving = true
		case p.Annotations[authorityAnnotation] == r.mark:
			d.waiting = d.waiting || withoutNode(p)
		case p.Spec.NodeName != "":
			d.old = p
		}
	}
	for _, d := range of {
		if !d.waiting || d.leaving || d.old == nil {
			continue
		}
		p := d.old
		say("evicting Pod %s/%s: no node has room for the Pod in its place", p.Namespace, p.Name)
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}
		err := r.workload.SubResource("eviction").Create(ctx, p, eviction)
		switch {
		case apierrors.IsTooManyRequests(err):
			blocked = wait.Sentences(blocked, fmt.Sprintf("a PodDisruptionBudget keeps Pod %s/%s, in whose place the "+
				"new one is to run", p.Namespace, p.Name))
		case err != nil && !kube.Absent(err):
			return "", fmt.Errorf("evict Pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	return blocked, nil
}

// withoutNode tells whether the scheduler has found no node for a Pod for a while.
func withoutNode(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && time.Since(p.CreationTimestamp.Time) > roomAfter &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				c.Reason == corev1.PodReasonUnschedulable
		})
}

// object is an object to read a workload into, and its Pod template.
func object(w kube.Workload) (client.Object, func() *corev1.PodTemplateSpec) {
	switch w.Kind {
	case "DaemonSet":
		o := &appsv1.DaemonSet{}
		return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
	case "StatefulSet":
		o := &appsv1.StatefulSet{}
		return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
	}
	o := &appsv1.Deployment{}
	return o, func() *corev1.PodTemplateSpec { return &o.Spec.Template }
}
