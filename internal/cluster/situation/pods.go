package situation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
)

func unreadyPods(ctx context.Context, workload *kube.Cluster) ([]why.Pod, error) {
	l := &corev1.PodList{}
	if err := workload.List(ctx, l, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return nil, fmt.Errorf("list the Pods of the system: %w", err)
	}
	var found []why.Pod
	for i := range l.Items {
		if p := &l.Items[i]; p.DeletionTimestamp == nil && !podReady(p) {
			found = append(found, why.Pod{Name: p.Name, Trouble: kube.PodTrouble(p), Crashes: kube.Crashing(p) != "",
				Log: logOf(p.Name)})
		}
	}
	slices.SortFunc(found, func(a, b why.Pod) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

func podReady(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || slices.ContainsFunc(p.Status.Conditions,
		func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
}

// logOf is what a Pod of a release is called in the target logs; empty: it is no release's.
func logOf(pod string) string {
	for _, c := range []bootstrap.Chart{bootstrap.Cilium(), bootstrap.HCloudCCM(), bootstrap.TalosCCM()} {
		if strings.HasPrefix(pod, c.Release+"-") {
			return c.Program
		}
	}
	for _, a := range config.ShippedAddons() {
		if strings.HasPrefix(pod, a.Name+"-") {
			return a.Name
		}
	}
	return ""
}
