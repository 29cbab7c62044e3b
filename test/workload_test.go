package test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// workload is a client of the cluster that the run created, with the kubeconfig that it left.
func workload(t *testing.T, c *command) *kubernetes.Clientset {
	t.Helper()
	return clientOf(t, filepath.Join(c.state, "kubeconfig"))
}

func nodesAreReady(t *testing.T, c *command) { nodesReady(t, c, 3) }

// nodesReady asserts how many control plane nodes there are, and that each is Ready,
// a server and of the configured version.
func nodesReady(t *testing.T, c *command, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	var nodes *corev1.NodeList
	// The controller manager removes the taint of a node that was not Ready a moment after it becomes Ready.
	eventually(t, "nodes without the taint not-ready", time.Minute, func(ctx context.Context) string {
		var err error
		nodes, err = workload(t, c).CoreV1().Nodes().List(ctx,
			metav1.ListOptions{LabelSelector: "node-role.kubernetes.io/control-plane"})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Items {
			if slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool {
				return taint.Key == corev1.TaintNodeNotReady
			}) {
				return n.Name + " has it"
			}
		}
		return ""
	})
	if len(nodes.Items) != want {
		t.Fatalf("%d control plane nodes, not %d", len(nodes.Items), want)
	}
	for _, n := range nodes.Items {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		if !ready {
			t.Errorf("node %s is not Ready", n.Name)
		}
		if id, ok := strings.CutPrefix(n.Spec.ProviderID, "hcloud://"); !ok {
			t.Errorf("node %s has the provider ID %q", n.Name, n.Spec.ProviderID)
		} else if _, err := strconv.ParseInt(id, 10, 64); err != nil {
			t.Errorf("node %s has the provider ID %q", n.Name, n.Spec.ProviderID)
		}
		if v := n.Status.NodeInfo.KubeletVersion; v != supportedKubernetes {
			t.Errorf("node %s runs %s, not %s", n.Name, v, supportedKubernetes)
		}
		if len(n.Spec.Taints) > 0 {
			t.Errorf("node %s is tainted: %v", n.Name, n.Spec.Taints)
		}
	}
	secrets, err := workload(t, c).CoreV1().Secrets("kube-system").List(ctx,
		metav1.ListOptions{LabelSelector: "owner=helm,status=deployed"})
	if err != nil {
		t.Fatal(err)
	}
	var releases []string
	for _, s := range secrets.Items {
		releases = append(releases, s.Labels["name"])
	}
	slices.Sort(releases)
	if len(releases) != 3 {
		t.Errorf("deployed Helm releases: %v, want three", releases)
	}
}

func etcdMembers(t *testing.T, c *command) { votingMembers(t, c, 3) }

// votingMembers asserts how many voting members etcd has, as Talos reports through the load balancer.
func votingMembers(t *testing.T, c *command, want int) {
	t.Helper()
	client, err := talosclient.New(t.Context(), talosclient.WithConfigFromFile(filepath.Join(c.state, "talosconfig")))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// A Node is Ready when its kubelet is; its etcd joins on its own, as a learner first.
	eventually(t, fmt.Sprintf("%d voting etcd members", want), time.Minute, func(ctx context.Context) string {
		resp, err := client.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{})
		if err != nil {
			return err.Error()
		}
		members := resp.GetMessages()[0].GetMembers()
		voters := 0
		for _, m := range members {
			if !m.GetIsLearner() {
				voters++
			}
		}
		if voters != want || len(members) != want {
			return fmt.Sprintf("%d voting etcd members of %d", voters, len(members))
		}
		return ""
	})
}
