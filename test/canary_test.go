package test

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// TestCanaryNode upgrades Cilium while no ClusterIP answers on the hosts' networks: the upgrade stops at one node. The
// same command finishes it when they answer again.
func TestCanaryNode(t *testing.T) {
	c := bootstrapped(t, "bootstrap")
	client := workload(t, c)
	const image = "quay.io/cilium/cilium:v1.20.0"
	upgrade := func(more ...string) outcome {
		return c.run(nil, append([]string{"upgrade", "--lab", "--yes", "CILIUM_VERSION=1.20.0"}, more...)...)
	}
	c.lab("fault", "add", "cluster-ips-away", "server=k8s-*")
	o := upgrade("RELEASE_TIMEOUT=45s")
	t.Logf("with a canary node that fails: exit %d after %.0fs", o.exit, o.elapsed.Seconds())
	for _, says := range []string{"stopped at its canary node k8s-control-plane-", ":443: i/o timeout",
		"KubePrism 127.0.0.1:7445", "The 2 other nodes run the old agent", "helm rollback cilium 1 "} {
		if o.exit != 1 || !strings.Contains(o.output, says) {
			t.Fatalf("exit %d, want 1 and %q\n%s", o.exit, says, o.output)
		}
	}
	if _, last, _ := strings.Cut(o.output, "stopped at its canary node"); strings.Contains(last, "KubePrism 127.0.0.1:7445: ") {
		t.Errorf("it says that KubePrism did not answer\n%s", o.output)
	}
	if on := agentsOf(t, client, image); on != 1 {
		t.Errorf("%d nodes run the new agent", on)
	}
	if is := strategyOf(t, client); is != appsv1.OnDeleteDaemonSetStrategyType {
		t.Errorf("the agents' strategy is %s", is)
	}
	c.lab("fault", "remove", "1")
	o = upgrade()
	t.Logf("with one that does not: exit %d after %.0fs", o.exit, o.elapsed.Seconds())
	if o.exit != 0 {
		t.Fatalf("exit %d\n%s", o.exit, o.end())
	}
	if on := agentsOf(t, client, image); on != 3 {
		t.Errorf("%d nodes run the new agent", on)
	}
	if is := strategyOf(t, client); is != appsv1.RollingUpdateDaemonSetStrategyType {
		t.Errorf("the agents' strategy is %s", is)
	}
	eventually(t, "the probe to be removed", time.Minute, func(ctx context.Context) string {
		probes := metav1.ListOptions{LabelSelector: "slipway.dev/canary-node"}
		left, err := client.CoreV1().Pods("kube-system").List(ctx, probes)
		if err != nil {
			return err.Error()
		}
		if len(left.Items) > 0 {
			return left.Items[0].Name
		}
		return ""
	})
}

// agentsOf counts the ready agents of an image.
func agentsOf(t *testing.T, client kubernetes.Interface, image string) (ready int) {
	t.Helper()
	pods, err := client.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "k8s-app=cilium"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image == image && p.Status.ContainerStatuses[0].Ready {
			ready++
		}
	}
	return ready
}

func strategyOf(t *testing.T, client kubernetes.Interface) appsv1.DaemonSetUpdateStrategyType {
	t.Helper()
	d, err := client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "cilium", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.Spec.UpdateStrategy.Type
}
