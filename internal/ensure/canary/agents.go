package canary

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// agents are the Pods of the DaemonSet, by the names of their nodes.
type agents struct {
	daemons *appsv1.DaemonSet
	hash    string // of the DaemonSet's template, as Pods that run it are labelled; empty: not known yet, or no matter
	pods    map[string]corev1.Pod
}

// runs tells whether a node's agent is one of the DaemonSet's template.
func (a agents) runs(node string) bool {
	p := a.pods[node]
	return p.DeletionTimestamp == nil && p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == a.hash
}

// old are the nodes whose agents are those of before.
func (a agents) old() (nodes []string) {
	for node := range a.pods {
		if !a.runs(node) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (u Upgrade) selected() []kube.Selection {
	in := []client.ListOption{client.InNamespace(u.Namespace)}
	return []kube.Selection{{List: &appsv1.DaemonSetList{}, Options: in}, {List: &corev1.PodList{}, Options: in}}
}

// agents reads them; none where there is no DaemonSet.
func (u Upgrade) agents(ctx context.Context) (agents, error) {
	d := &appsv1.DaemonSet{}
	if err := u.Cluster.Get(ctx, client.ObjectKey{Namespace: u.Namespace, Name: u.Release}, d); kube.Absent(err) {
		return agents{}, nil
	} else if err != nil {
		return agents{}, fmt.Errorf("get DaemonSet %s: %w", u.Release, err)
	}
	found := agents{daemons: d, pods: map[string]corev1.Pod{}}
	own := []client.ListOption{client.InNamespace(u.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)}
	pods := &corev1.PodList{}
	if err := u.Cluster.List(ctx, pods, own...); err != nil {
		return agents{}, fmt.Errorf("list the Pods of DaemonSet %s: %w", u.Release, err)
	}
	for _, p := range pods.Items {
		if !metav1.IsControlledBy(&p, d) || p.Spec.NodeName == "" {
			continue
		}
		if other, has := found.pods[p.Spec.NodeName]; !has || other.DeletionTimestamp != nil {
			found.pods[p.Spec.NodeName] = p
		}
	}
	if d.Status.ObservedGeneration < d.Generation {
		return found, nil
	}
	revisions := &appsv1.ControllerRevisionList{}
	if err := u.Cluster.List(ctx, revisions, own...); err != nil {
		return agents{}, fmt.Errorf("list the revisions of DaemonSet %s: %w", u.Release, err)
	}
	newest := int64(-1)
	for _, r := range revisions.Items {
		if metav1.IsControlledBy(&r, d) && r.Revision > newest {
			newest, found.hash = r.Revision, r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
		}
	}
	return found, nil
}

// outdated waits until the DaemonSet controller has seen the upgrade. Without a hash there is nothing for a canary node
// to show: every node runs the template, or the Pods are being replaced already.
func (u Upgrade) outdated(ctx context.Context, say flow.Say) (have agents, err error) {
	err = u.until(ctx, say, "DaemonSet "+u.Release, func(ctx context.Context) (string, error) {
		if have, err = u.agents(ctx); err != nil {
			return "", err
		}
		if have.hash == "" {
			return "its controller has not seen the upgrade yet", nil
		}
		return "", nil
	})
	switch {
	case err != nil:
		return agents{}, err
	case have.daemons.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType:
		say("note: chart %s does not know the value %s.%s: the agents are replaced without a canary node", u.Chart.Name(),
			strategyValue, typeValue)
		return agents{}, nil
	case len(have.old()) == 0:
		return agents{}, nil
	}
	return have, nil
}

// choose gives the canary node, which is the same in every run that resumes the upgrade: a worker where there is one,
// otherwise a control plane node other than the one that the kubeconfig leads to, the oldest of them. One that is not
// Ready is no canary node, unless it became so with the new agent.
func (u Upgrade) choose(ctx context.Context, say flow.Say, have agents) (string, error) {
	var nodes []corev1.Node
	err := u.until(ctx, say, "the nodes", func(ctx context.Context) (string, error) {
		l := &corev1.NodeList{}
		if err := u.Cluster.List(ctx, l); err != nil {
			return "", fmt.Errorf("list the nodes: %w", err)
		}
		nodes = slices.DeleteFunc(l.Items, func(n corev1.Node) bool {
			_, has := have.pods[n.Name]
			return !has
		})
		if len(nodes) == 0 {
			return "no agent of " + u.Release + " is on a node that exists", nil
		}
		return "", nil
	})
	if err != nil {
		return "", err
	}
	server := ""
	if address, err := url.Parse(u.Cluster.Host()); err == nil {
		server = address.Hostname()
	}
	last := func(is bool) int {
		if is {
			return 1
		}
		return 0
	}
	return slices.MinFunc(nodes, func(a, b corev1.Node) int {
		rank := func(n corev1.Node) int {
			_, plane := n.Labels[capi.ControlPlaneRole]
			return 4*last(unready(n) != "" && !have.runs(n.Name)) + 2*last(plane) + last(serves(n, server))
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	}).Name, nil
}

func serves(n corev1.Node, host string) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == host })
}

// unready says why a node is not Ready; empty: it is.
func unready(n corev1.Node) string {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return ""
		} else if c.Type == corev1.NodeReady {
			return fmt.Sprintf("the node is not Ready: %s", cmp.Or(c.Message, c.Reason))
		}
	}
	return "the node is not Ready"
}

// replace has the node's agent replaced, unless it was in an earlier run, and waits until the new one is ready.
func (u Upgrade) replace(ctx context.Context, say flow.Say, have agents, node string) error {
	before := have.pods[node]
	return u.until(ctx, say, "the new agent on node "+node, func(ctx context.Context) (string, error) {
		now, err := u.agents(ctx)
		if err != nil {
			return "", err
		}
		p, has := now.pods[node]
		switch {
		case !has:
			return "there is no Pod of DaemonSet " + u.Release, nil
		case p.DeletionTimestamp != nil:
			return "Pod " + p.Name + " of the old agent has not ended", nil
		case p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == have.hash:
			return u.unreadyAgent(ctx, p)
		case p.UID != before.UID:
			return "", wait.Final(fmt.Errorf("Pod %s runs neither the old agent nor the new one: another process changes "+
				"DaemonSet %s", p.Name, u.Release))
		}
		say("deleting Pod %s, the agent of node %s", p.Name, node)
		if err := u.Cluster.Delete(ctx, &p, client.Preconditions{UID: &p.UID}); err != nil && !kube.Absent(err) {
			return "", fmt.Errorf("delete Pod %s: %w", p.Name, err)
		}
		return "its old agent is being replaced", nil
	})
}

func (u Upgrade) unreadyAgent(ctx context.Context, p corev1.Pod) (string, error) {
	node, err := u.node(ctx, p.Spec.NodeName)
	if err != nil || podReady(p) {
		return "", err
	}
	return wait.Sentences(cmp.Or(kube.PodTrouble(&p), "Pod "+p.Name+" is not ready"), unready(node)), nil
}

func (u Upgrade) node(ctx context.Context, name string) (corev1.Node, error) {
	n := corev1.Node{}
	err := u.Cluster.Get(ctx, client.ObjectKey{Name: name}, &n)
	if kube.Absent(err) {
		return n, wait.Final(fmt.Errorf("node %s has gone while it was the canary node: run again, which chooses another",
			name))
	}
	if err != nil {
		return n, fmt.Errorf("get Node %s: %w", name, err)
	}
	return n, nil
}

func podReady(p corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
