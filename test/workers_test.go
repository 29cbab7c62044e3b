package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
)

// TestWorkers runs a cluster with a worker pool: it is created with two workers, gets four, is scaled to one with
// consent alone, and the server of that one vanishes and is replaced by Cluster API's health check. After the pivot it
// gets two; all servers are lost, and a restore brings them back. The cluster has add-ons from its first run on, one of
// them the operator's own.
func TestWorkers(t *testing.T) {
	c := newCommand(t)
	c.env = []string{"CONTROL_PLANE_REPLICAS=1"}
	file := addonsFile(t)
	run := func(exit int, says string, args ...string) {
		t.Helper()
		o := c.run(nil, append(args, "--lab", "--config", file)...)
		if o.exit != exit || !strings.Contains(o.output, says) {
			t.Fatalf("%v: exit %d, want %d and %q\n%s", args, o.exit, exit, says, o.output)
		}
		t.Logf("%v in %.1fs", args, o.elapsed.Seconds())
	}
	run(0, "this creates MachineDeployment k8s-general with 2 servers", "bootstrap", "WORKERS=2")
	p := c.project()
	// workers are the nodes that are not of the control plane. Cluster API labels a node, and its controller takes the
	// taint of its start away, a moment after it is Ready.
	workers := func(n int) (all []corev1.Node) {
		t.Helper()
		client := clientOf(t, filepath.Join(c.state, "kubeconfig"))
		eventually(t, fmt.Sprintf("%d workers", n), time.Minute, func(ctx context.Context) string {
			nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			all = slices.DeleteFunc(slices.Clone(nodes.Items), func(node corev1.Node) bool {
				_, controlPlane := node.Labels["node-role.kubernetes.io/control-plane"]
				return controlPlane
			})
			if len(all) != n || len(nodes.Items) != 1+n {
				return fmt.Sprintf("%d workers of %d nodes, want %d of %d", len(all), len(nodes.Items), n, 1+n)
			}
			for _, node := range all {
				if !readyNode(node) || node.Labels["node.cluster.x-k8s.io/worker-pool"] != "general" ||
					len(node.Spec.Taints) > 0 {
					return fmt.Sprintf("worker %s: ready %v, labels %v, taints %v", node.Name, readyNode(node), node.Labels,
						node.Spec.Taints)
				}
			}
			return ""
		})
		return all
	}
	workers(2)
	addons(t, c, "kube-system/hcloud-csi-controller", "kube-system/metrics-server", "shop-system/shop")
	groups, err := p.PlacementGroup.AllWithOpts(t.Context(), hcloud.PlacementGroupListOpts{Name: "k8s-general"})
	if err != nil || len(groups) != 1 || len(groups[0].Servers) != 2 {
		t.Errorf("the pool's placement group: %v, %v", groups, err)
	}
	balancers, err := p.LoadBalancer.All(t.Context())
	if err != nil || len(balancers) != 1 || len(balancers[0].Targets) != 1 {
		t.Errorf("the load balancer has other targets than the control plane: %v, %v", balancers, err)
	}

	run(0, "adds 2 servers to MachineDeployment k8s-general: replicas 2 → 4", "bootstrap", "WORKERS=4")
	workers(4)
	run(2, "removes 3 of the 4 servers of MachineDeployment k8s-general", "bootstrap", "WORKERS=1")
	run(2, "and its 4 servers: worker pool general no longer needs it", "bootstrap")
	workers(4)
	run(2, "did you mean workers/general?", "scale", "workers/genera", "1")
	looked, err := c.cmd(t.Context(), "scale", "workers/general", "10", "--dry-run", "WORKERS=4", "--lab").CombinedOutput()
	if err != nil || !strings.Contains(string(looked), "general 4 → 9, MachineDeployment k8s-general-2 is created with 1") {
		t.Errorf("%v\n%s", err, looked)
	}
	run(2, "--yes answers beforehand", "scale", "workers/general", "1")
	workers(4)
	run(0, "the configuration has no worker pool general", "scale", "workers/general", "1", "--yes")
	last := workers(1)[0]

	gone, _, err := p.Server.GetByName(t.Context(), last.Name)
	if err != nil || gone == nil {
		t.Fatalf("server %s: %v", last.Name, err)
	}
	deleted := must(first(p.Server.DeleteWithResult(t.Context(), gone)))(t)
	if err := p.Action.WaitFor(t.Context(), deleted.Action); err != nil {
		t.Fatal(err)
	}
	// CAPH creates the server again at once. The cloud controller manager sees in most cases that the node is not Ready,
	// and deletes it, so that the health check replaces the Machine. It sees nothing while its own Pod is on that server;
	// then the run tells what to do.
	o := c.run(nil, "bootstrap", "WORKERS=1", "--lab", "--config", file)
	if o.exit != 0 {
		remedy := "kubectl --namespace default delete machine " + last.Name
		if !strings.Contains(o.output, remedy) {
			t.Fatalf("server %s vanished: exit %d, and no word of %q\n%s", last.Name, o.exit, remedy, o.output)
		}
		management := must(kube.Connect(must(os.ReadFile(filepath.Join(c.state, "management.kubeconfig")))(t)))(t)
		machine := &unstructured.Unstructured{}
		machine.SetGroupVersionKind(capi.MachineKind)
		machine.SetNamespace("default")
		machine.SetName(last.Name)
		if err := management.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
		run(0, "", "bootstrap", "WORKERS=1")
	}
	if now := workers(1)[0]; now.Spec.ProviderID == last.Spec.ProviderID {
		t.Errorf("worker %s has the provider ID of the server that vanished, %s", now.Name, now.Spec.ProviderID)
	}

	run(0, "", "all", "WORKERS=1")
	workers(1)
	addons(t, c, "kube-system/hcloud-csi-controller", "kube-system/metrics-server", "shop-system/shop",
		"kube-system/cluster-autoscaler-clusterapi-cluster-autoscaler")
	run(0, "adds 1 server to MachineDeployment k8s-general: replicas 1 → 2", "bootstrap", "WORKERS=2")
	workers(2)

	// Everything is lost, and comes back out of a backup, the workers too.
	folder := t.TempDir()
	passphrase := filepath.Join(folder, "passphrase")
	if err := os.WriteFile(passphrase, []byte("a passphrase of the test"), 0o600); err != nil {
		t.Fatal(err)
	}
	key := "BACKUP_PASSPHRASE_FILE=" + passphrase
	run(0, "", "backup", "--to", folder, key)
	files, err := filepath.Glob(filepath.Join(folder, "*.slipway"))
	if err != nil || len(files) != 1 {
		t.Fatalf("backups: %v, %v", files, err)
	}
	var lost []int64
	for _, s := range must(p.Server.All(t.Context()))(t) {
		lost = append(lost, s.ID)
		if err := p.Action.WaitFor(t.Context(), must(first(p.Server.DeleteWithResult(t.Context(), s)))(t).Action); err != nil {
			t.Fatal(err)
		}
	}
	run(0, "", "restore", files[0], "--yes", key)
	workers(2)
	addons(t, c, "kube-system/hcloud-csi-controller", "kube-system/metrics-server", "shop-system/shop",
		"kube-system/cluster-autoscaler-clusterapi-cluster-autoscaler")
	for _, s := range must(p.Server.All(t.Context()))(t) {
		if slices.Contains(lost, s.ID) {
			t.Errorf("server %s is still there", s.Name)
		}
	}

	run(0, "", "destroy", "--yes")
	servers, err := p.Server.All(t.Context())
	left, groupsErr := p.PlacementGroup.All(t.Context())
	if err != nil || groupsErr != nil || len(servers)+len(left) > 0 {
		t.Errorf("after destroy: servers %v, placement groups %v, %v, %v", servers, left, err, groupsErr)
	}
}

// addonsFile is a bootstrap.yaml with the shipped add-ons and one of the operator's own, whose chart is served here.
func addonsFile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "bootstrap.yaml")
	text := fmt.Sprintf(`addons:
  - name: shop
    chart: %s
    repository: %s
    version: %s
    namespace: %s
    timeout: 5m
    after: [hcloud-csi]
  - hcloud-csi
  - metrics-server
  - cluster-autoscaler
`, clustertest.OwnChart, clustertest.ServeCharts(t), clustertest.OwnVersion, clustertest.OwnNamespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// addons waits until these Deployments are the add-ons', and available: those of the cluster autoscaler are there after
// the pivot alone.
func addons(t *testing.T, c *command, want ...string) {
	t.Helper()
	client := clientOf(t, filepath.Join(c.state, "kubeconfig"))
	eventually(t, fmt.Sprintf("the add-ons %v", want), time.Minute, func(ctx context.Context) string {
		all, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var found []string
		for _, d := range all.Items {
			name := d.Namespace + "/" + d.Name
			if d.Namespace == clustertest.OwnNamespace || strings.Contains(name, "hcloud-csi") ||
				strings.Contains(name, "metrics-server") || strings.Contains(name, "autoscaler") {
				found = append(found, name)
				if d.Status.AvailableReplicas == 0 {
					return name + " is not available"
				}
			}
		}
		slices.Sort(found)
		slices.Sort(want)
		if !slices.Equal(found, want) {
			return fmt.Sprintf("there are %v", found)
		}
		return ""
	})
}

func readyNode(n corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
