package kubelet

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func (w *harness) node() *corev1.Node {
	w.t.Helper()
	node, err := w.api.CoreV1().Nodes().Get(w.t.Context(), "node-1", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node
}

func TestNodeOfAnExternalCloudProvider(t *testing.T) {
	taint := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	w := start(t, func(c *Config) {
		c.ExternalCloudProvider, c.Network, c.OSImage = true, NetworkFromAgent, "Talos (v1.12.2)"
		c.Labels = map[string]string{"node-role.kubernetes.io/control-plane": "", "topology.kubernetes.io/zone": "a"}
		c.Taints = []corev1.Taint{taint}
		c.ExternalIP = "127.9.9.9"
	})
	node := w.node()
	if node.Spec.ProviderID != "" || len(node.Spec.Taints) != 2 || node.Spec.Taints[1].Key != uninitialized {
		t.Errorf("spec %+v", node.Spec)
	}
	for key, want := range map[string]string{
		"node-role.kubernetes.io/control-plane": "", "topology.kubernetes.io/zone": "a",
		corev1.LabelHostname: "node-1", corev1.LabelOSStable: "linux",
	} {
		if got, ok := node.Labels[key]; !ok || got != want {
			t.Errorf("label %s is %q, %v", key, got, ok)
		}
	}
	if node.Annotations[providedNodeIP] != "127.0.0.9" || len(node.Status.Addresses) != 2 {
		t.Errorf("annotations %v, addresses %v", node.Annotations, node.Status.Addresses)
	}
	info := node.Status.NodeInfo
	if info.KubeletVersion != "v1.32.3" || info.OSImage != "Talos (v1.12.2)" ||
		info.ContainerRuntimeVersion != runtimeVersion {
		t.Errorf("nodeInfo %+v", info)
	}
	if got := nodeReady(node); got != "False KubeletNotReady" {
		t.Errorf("the Node is %q", got)
	}
	if node.Status.Allocatable.Cpu().IsZero() || node.Status.Allocatable.Pods().IsZero() {
		t.Errorf("allocatable %v", node.Status.Allocatable)
	}

	// The addresses that the cloud provider reported stay.
	own := []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "127.9.9.9"}}
	node.Spec.ProviderID, node.Spec.Taints, node.Status.Addresses = "hcloud://1", nil, own
	if _, err := w.api.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.agentReady("a Pod")
	eventually(t, "the Node is Ready", func() (string, bool) { return "", nodeReady(w.node()) == "True KubeletReady" })
	if got := w.node(); len(got.Spec.Taints) != 0 || len(got.Status.Addresses) != 1 || got.Status.Addresses[0] != own[0] {
		t.Errorf("taints %v, addresses %v", got.Spec.Taints, got.Status.Addresses)
	}
	for _, c := range w.node().Status.Conditions {
		if c.Type == corev1.NodeMemoryPressure && c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
	}
}

func TestRegistrationIsRetriedAndLeaseIsKept(t *testing.T) {
	api := fake.NewClientset()
	refused := 0
	api.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused++; refused <= 2 {
			return true, nil, errors.New("the API server is not there yet")
		}
		return false, nil, nil
	})
	w := startOn(t, api, nil)
	if refused != 3 {
		t.Errorf("%d attempts to register; want 3", refused)
	}
	eventually(t, "the Lease is there", func() (string, bool) {
		lease, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return "", *lease.Spec.HolderIdentity == "node-1" && time.Since(lease.Spec.RenewTime.Time) < time.Minute &&
			len(lease.OwnerReferences) == 1
	})
}

func TestNodeThatExistsKeepsItsTaints(t *testing.T) {
	w := start(t, func(c *Config) {
		c.ExternalCloudProvider = true
		c.Labels = map[string]string{"example.org/new": "1"}
	}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{"of": "others"}}})
	node := w.node()
	if len(node.Spec.Taints) != 0 || node.Labels["of"] != "others" || node.Labels["example.org/new"] != "1" {
		t.Errorf("taints %v, labels %v", node.Spec.Taints, node.Labels)
	}
	eventually(t, "its status is written", func() (string, bool) { return "", nodeReady(w.node()) == "True KubeletReady" })
}

func TestOwnLabel(t *testing.T) {
	for key, want := range map[string]bool{
		"plain": true, "example.org/a": true, "kubernetes.io/hostname": true, "node.kubernetes.io/instance-type": true,
		"node.kubernetes.io/exclude-from-external-load-balancers": true, "sub.node.kubernetes.io/a": true,
		"node-role.kubernetes.io/control-plane": false, "kubernetes.io/a": false, "a.k8s.io/b": false,
		"node-restriction.kubernetes.io/a": false, "notkubernetes.io/a": true,
	} {
		if got := ownLabel(key); got != want {
			t.Errorf("ownLabel(%s) = %v", key, got)
		}
	}
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	_, err := New(Config{Node: "n"})
	if err == nil {
		t.Fatal("an empty configuration was accepted")
	}
	for _, field := range []string{"Cluster", "InternalIP", "KubeletVersion", "Client", "Dir", "Processes", "Registry"} {
		if !strings.Contains(err.Error(), field+" is missing") {
			t.Errorf("%v does not name %s", err, field)
		}
	}
}
