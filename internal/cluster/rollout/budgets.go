package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// Budget is a PodDisruptionBudget that allows no eviction at the moment.
type Budget struct {
	Namespace, Name string
	Pods            []string // on the nodes that were asked about
	Nodes           []string // those of them that the Pods are on
	Healthy, Needed int32    // Pods that are healthy, and that it wants to stay
}

// String is "PodDisruptionBudget shop/web (2 of its Pods are healthy and 2 must stay: web-1 on node-a)".
func (b Budget) String() string {
	return fmt.Sprintf("PodDisruptionBudget %s/%s (%d of its Pods are healthy and %d must stay: %s)", b.Namespace, b.Name,
		b.Healthy, b.Needed, strings.Join(b.Pods, ", "))
}

// BlockingBudgets lists the budgets that allow no eviction now and have a Pod on one of the nodes: a drain of that node
// waits for them, without an end. Budgets whose Pods are elsewhere, or are of a DaemonSet, which a drain leaves, do not
// count.
func BlockingBudgets(ctx context.Context, c *kube.Cluster, nodes []string) ([]Budget, error) {
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := c.List(ctx, budgets); err != nil {
		return nil, fmt.Errorf("list the PodDisruptionBudgets: %w", err)
	}
	var found []Budget
	for _, b := range budgets.Items {
		if b.Status.ExpectedPods == 0 || b.Status.DisruptionsAllowed > 0 {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("PodDisruptionBudget %s/%s: its selector: %w", b.Namespace, b.Name, err)
		}
		pods, on, err := evicted(ctx, c, b.Namespace, selector, nodes)
		if err != nil {
			return nil, err
		}
		if len(pods) > 0 {
			found = append(found, Budget{Namespace: b.Namespace, Name: b.Name, Pods: pods, Nodes: on,
				Healthy: b.Status.CurrentHealthy, Needed: b.Status.DesiredHealthy})
		}
	}
	return found, nil
}

// evicted names the Pods that a drain of the nodes evicts, and the nodes that they are on.
func evicted(ctx context.Context, c *kube.Cluster, namespace string, selector labels.Selector, nodes []string) (
	names, on []string, err error) {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, nil, fmt.Errorf("list the Pods of namespace %s: %w", namespace, err)
	}
	for _, p := range pods.Items {
		owner := metav1.GetControllerOf(&p)
		switch {
		case !slices.Contains(nodes, p.Spec.NodeName), owner != nil && owner.Kind == "DaemonSet",
			p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
			continue
		}
		names = append(names, p.Name+" on "+p.Spec.NodeName)
		if !slices.Contains(on, p.Spec.NodeName) {
			on = append(on, p.Spec.NodeName)
		}
	}
	return names, on, nil
}

// Undrainable says that a server that goes cannot be drained now, because of budgets.
func Undrainable(budgets []Budget) string {
	return "a server that goes is drained first, and that would wait without an end for " + BudgetSentence(budgets) +
		": scale its Pods up or change it, then run again"
}

// BudgetSentence names budgets in a list; empty: there are none.
func BudgetSentence(budgets []Budget) string {
	var all []string
	for _, b := range budgets {
		all = append(all, b.String())
	}
	return strings.Join(all, "; ")
}
