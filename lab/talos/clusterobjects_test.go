package talos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

func testNodes(t *testing.T, f *fixture, kube kubernetes.Interface, want []cloud.Server) {
	var nodes []corev1.Node
	await(t, patience, "Nodes", func() error {
		list, err := kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != len(want) {
			err = fmt.Errorf("%d Nodes", len(list.Items))
		}
		if err == nil {
			nodes = list.Items
		}
		return err
	})
	for i, n := range nodes {
		if n.Name != want[i].Name || n.Status.NodeInfo.KubeletVersion != "v"+kubernetesVersion ||
			n.Status.NodeInfo.OSImage != "Talos (v1.12.2)" {
			t.Errorf("node %s: %+v", n.Name, n.Status.NodeInfo)
		}
		if _, ok := n.Labels["node-role.kubernetes.io/control-plane"]; ok != strings.Contains(n.Name, "-cp-") {
			t.Errorf("node %s: labels %v", n.Name, n.Labels)
		}
		if _, ok := n.Labels["node.kubernetes.io/exclude-from-external-load-balancers"]; ok {
			t.Errorf("node %s is excluded from load balancers", n.Name)
		}
		uninitialized := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == "node.cloudprovider.kubernetes.io/uninitialized"
		})
		if !uninitialized || n.Spec.ProviderID != "" {
			t.Errorf("node %s: taints %v, provider ID %q: want it to wait for a cloud controller", n.Name, n.Spec.Taints,
				n.Spec.ProviderID)
		}
		if n.Annotations["alpha.kubernetes.io/provided-node-ip"] != want[i].PrivateIP().String() {
			t.Errorf("node %s: annotations %v", n.Name, n.Annotations)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				t.Errorf("node %s is Ready without a CNI", n.Name)
			}
		}
	}
	await(t, patience, "requests for serving certificates", func() error {
		requests, err := kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		from := map[string]bool{}
		for _, r := range requests.Items {
			from[r.Spec.Username] = true
		}
		if len(from) != len(want) {
			return fmt.Errorf("from %v", from)
		}
		return nil
	})
}

func testManifests(t *testing.T, f *fixture, kube kubernetes.Interface, x *Talos) {
	await(t, patience, "DNS", func() error {
		dns, err := kube.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
		if err == nil && dns.Spec.ClusterIP != f.address("96.10") {
			t.Errorf("DNS is at %s", dns.Spec.ClusterIP)
		}
		if err == nil {
			_, err = kube.AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
		}
		return err
	})
	await(t, patience, "every server to find them", func() error {
		for _, server := range x.Status() {
			for _, note := range server.Notes {
				if strings.HasPrefix(note, "manifests: ") {
					return fmt.Errorf("%s: %s", server.Name, note)
				}
			}
		}
		return nil
	})
	sets, err := kube.AppsV1().DaemonSets("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 0 {
		t.Errorf("%d DaemonSets, %v: CNI and kube-proxy were declined", len(sets.Items), err)
	}
	// The PodSecurity defaults of Talos: baseline outside of kube-system.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "privileged"}, Spec: corev1.PodSpec{
		HostNetwork: true, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("a Pod on the host's network in default: %v", err)
	}
}

func testServiceAccounts(t *testing.T, f *fixture, config *rest.Config) {
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	account := func(namespace, name, role string) {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "talos.dev/v1alpha1", "kind": "ServiceAccount", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"roles": []any{role}}}}
		await(t, patience, "ServiceAccount "+name, func() error {
			_, err := dynamicClient.Resource(talosServiceAccounts).Namespace(namespace).Create(t.Context(), o,
				metav1.CreateOptions{})
			return err
		})
	}
	account("kube-system", "ccm-talos-secrets", "os:reader")
	account("kube-system", "too-much", "os:admin")
	account("default", "elsewhere", "os:reader")

	kube := clientOf(t, config)
	var talosconfig []byte
	await(t, patience, "its Secret", func() error {
		secret, err := kube.CoreV1().Secrets("kube-system").Get(t.Context(), "ccm-talos-secrets", metav1.GetOptions{})
		if err == nil {
			talosconfig = secret.Data["config"]
		}
		return err
	})
	path := filepath.Join(t.TempDir(), "talosconfig")
	if err := os.WriteFile(path, talosconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), client.WithConfigFromFile(path))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Version(t.Context()); err != nil {
		t.Errorf("a reader's access: %v", err)
	}
	if err := c.Reboot(t.Context()); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a reader reboots: %v", err)
	}
	for _, refused := range [][2]string{{"kube-system", "too-much"}, {"default", "elsewhere"}} {
		await(t, patience, "the refusal of "+refused[1], func() error {
			o, err := dynamicClient.Resource(talosServiceAccounts).Namespace(refused[0]).Get(t.Context(), refused[1],
				metav1.GetOptions{})
			if err != nil {
				return err
			}
			reason, _, _ := unstructured.NestedString(o.Object, "status", "failureReason")
			if !strings.Contains(reason, "not allowed") {
				return fmt.Errorf("failureReason %q", reason)
			}
			return nil
		})
	}
}
