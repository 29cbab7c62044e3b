package caph

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/cloud"
)

// TestStandIn runs the stand-in with a real Kubernetes API and the simulated Hetzner Cloud; each subtest has its own
// cluster.
func TestStandIn(t *testing.T) {
	w := newHarness(t, false)
	w.start(t, "")
	t.Run("life of a cluster", w.testLife)
	t.Run("images", w.testImages)
	t.Run("servers that vanish or go off", w.testRepair)
	t.Run("missing endpoint", w.testMissingEndpoint)
	t.Run("paused", w.testPaused)
	t.Run("adopted load balancer", w.testAdoption)
	t.Run("wrong token", w.testToken)
	t.Run("template", w.testTemplate)
	t.Run("webhooks", w.testWebhooks)
	t.Run("rate limit", w.testRateLimit) // last: it hits every cluster that is left
}

func (w *harness) testLife(t *testing.T) {
	ctx := t.Context()
	f := w.fixture(t, "life", nil)

	infra := f.waitCluster(t, "the cluster to be ready", ready)
	if got := infra.Status.FailureDomains; len(got) != 1 || !got["nbg1"].ControlPlane {
		t.Errorf("failure domains: %v", got)
	}
	network, _, err := w.hetzner.Network.GetByID(ctx, infra.Status.Network.ID)
	must(t, err)
	if network == nil || network.Name != "life" || network.Labels["caph-cluster-life"] != "owned" ||
		len(network.Subnets) != 1 ||
		network.Subnets[0].IPRange.String() != f.infra.Spec.HCloudNetwork.SubnetCIDRBlock {
		t.Errorf("network: %+v", network)
	}
	lb, _, err := w.hetzner.LoadBalancer.GetByID(ctx, infra.Status.ControlPlaneLoadBalancer.ID)
	must(t, err)
	if lb == nil || !strings.HasPrefix(lb.Name, "life-kube-apiserver-") ||
		infra.Spec.ControlPlaneEndpoint.Host != lb.PublicNet.IPv4.IP.String() {
		t.Errorf("load balancer %+v, endpoint %v", lb, infra.Spec.ControlPlaneEndpoint)
	}
	eventually(t, "both services", func(ctx context.Context) error {
		lb, _, err := w.hetzner.LoadBalancer.GetByID(ctx, lb.ID)
		if err != nil || len(lb.Services) != 2 || len(lb.PrivateNet) != 1 {
			return fmt.Errorf("%+v (%w)", lb, err)
		}
		return nil
	})
	if groups := infra.Status.HCloudPlacementGroups; len(groups) != 1 || groups[0].Name != "control-plane" {
		t.Errorf("placement groups: %v", groups)
	}
	secret := &corev1.Secret{}
	must(t, w.Get(ctx, client.ObjectKey{Namespace: "life", Name: "hetzner"}, secret))
	if secret.Labels[secretLabel] != secretLabelValue || !slices.Contains(secret.Finalizers, secretFinalizer) ||
		len(secret.OwnerReferences) != 1 ||
		secret.OwnerReferences[0].Kind != "HetznerCluster" || ptr.Deref(secret.OwnerReferences[0].Controller, false) {
		t.Errorf("the Hetzner secret's metadata: %+v", secret.ObjectMeta)
	}

	// A machine waits for its bootstrap data, then becomes a server.
	machine := f.machine(t, "life-cp-1", nil)
	f.waitMachine(t, "life-cp-1", "the machine to wait for bootstrap data", func(m *api.HCloudMachine) error {
		return falseFor(m, api.BootstrapReady, api.BootstrapNotReady)
	})
	f.bootstrap(t, machine)
	server := f.waitMachine(t, "life-cp-1", "the machine to be ready", machineReady)
	id, err := strconv.ParseInt(strings.TrimPrefix(ptr.Deref(server.Spec.ProviderID, ""), "hcloud://"), 10, 64)
	must(t, err)
	made, _, err := w.hetzner.Server.GetByID(ctx, id)
	must(t, err)
	wantLabels := map[string]string{"caph-cluster-life": "owned", "machine.caph-name": "life-cp-1",
		"machine_type": "control_plane"}
	if made == nil || made.Name != "life-cp-1" || len(made.PrivateNet) != 1 || made.PlacementGroup == nil {
		t.Fatalf("server: %+v", made)
	}
	for key, value := range wantLabels {
		if made.Labels[key] != value {
			t.Errorf("server's label %s is %q, want %q", key, made.Labels[key], value)
		}
	}
	for _, seen := range w.cloud.Servers() {
		if seen.ID == id && seen.UserData != "user data of life-cp-1" {
			t.Errorf("user data: %q", seen.UserData)
		}
	}
	kinds := map[clusterv1.MachineAddressType]string{}
	for _, address := range server.Status.Addresses {
		if kinds[address.Type] == "" {
			kinds[address.Type] = address.Address
		}
	}
	if kinds[clusterv1.MachineExternalIP] != made.PublicNet.IPv4.IP.String() ||
		kinds[clusterv1.MachineInternalIP] != made.PrivateNet[0].IP.String() {
		t.Errorf("addresses: %v", server.Status.Addresses)
	}
	must(t, w.Get(ctx, client.ObjectKey{Namespace: "life", Name: "life-cp-1-bootstrap-data"}, secret))
	if len(secret.OwnerReferences) != 1 || secret.OwnerReferences[0].Kind != "HCloudMachine" ||
		len(secret.Finalizers) != 0 {
		t.Errorf("the bootstrap secret's metadata: %+v", secret.ObjectMeta)
	}
	if got := targets(t, w, lb); !slices.Equal(got, []int64{id}) {
		t.Errorf("load balancer's targets: %v, want [%d]", got, id)
	}

	t.Run("workload cluster", func(t *testing.T) { f.testTarget(t, infra, server) })

	// Deletion waits for the machines, then leaves nothing.
	must(t, w.Delete(ctx, f.infra))
	must(t, w.Delete(ctx, server))
	eventually(t, "the machine to be gone", func(ctx context.Context) error { return gone(ctx, w.Client, server) })
	if left, _, err := w.hetzner.Server.GetByID(ctx, id); err != nil || left != nil {
		t.Errorf("server after its machine's deletion: %+v, %v", left, err)
	}
	eventually(t, "the cluster to be gone", func(ctx context.Context) error { return gone(ctx, w.Client, infra) })
	if left, _, _ := w.hetzner.Network.GetByID(ctx, network.ID); left != nil {
		t.Errorf("network left: %+v", left)
	}
	if left, _, _ := w.hetzner.LoadBalancer.GetByID(ctx, lb.ID); left != nil {
		t.Errorf("load balancer left: %+v", left)
	}
	if left, err := w.hetzner.PlacementGroup.All(ctx); err != nil || len(left) != 0 {
		t.Errorf("placement groups left: %+v, %v", left, err)
	}
	must(t, w.Get(ctx, client.ObjectKey{Namespace: "life", Name: "hetzner"}, secret))
	if len(secret.Finalizers) != 0 {
		t.Errorf("the Hetzner secret keeps the finalizers %v", secret.Finalizers)
	}
}

func targets(t *testing.T, w *harness, lb *hcloud.LoadBalancer) (ids []int64) {
	t.Helper()
	lb, _, err := w.hetzner.LoadBalancer.GetByID(t.Context(), lb.ID)
	must(t, err)
	for _, target := range lb.Targets {
		ids = append(ids, target.Server.Server.ID)
	}
	return ids
}

func (w *harness) testImages(t *testing.T) {
	f := w.fixture(t, "images", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	absent := f.machine(t, "images-absent", func(m *api.HCloudMachine) { m.Spec.ImageName = "late" })
	f.bootstrap(t, absent)
	f.waitMachine(t, "images-absent", "ImageNotFound", func(m *api.HCloudMachine) error {
		return falseFor(m, api.ServerCreateSucceeded, api.ImageNotFound)
	})
	must(t, w.cloud.EnsureSnapshot("late", "x86"))
	f.waitMachine(t, "images-absent", "the server once the image exists", machineReady)

	must(t, w.cloud.EnsureSnapshot("twice", "x86"))
	image := w.snapshotOf(t, "images-absent")
	_, _, err := w.hetzner.Image.Update(t.Context(), image,
		hcloud.ImageUpdateOpts{Labels: map[string]string{api.TagImageName: "twice"}})
	must(t, err)
	f.bootstrap(t, f.machine(t, "images-twice", func(m *api.HCloudMachine) { m.Spec.ImageName = "twice" }))
	f.waitMachine(t, "images-twice", "ImageAmbiguous", func(m *api.HCloudMachine) error {
		return falseFor(m, api.ServerCreateSucceeded, api.ImageAmbiguous)
	})
	group := f.machine(t, "images-group", func(m *api.HCloudMachine) { m.Spec.PlacementGroupName = ptr.To("none") })
	f.bootstrap(t, group)
	f.waitMachine(t, "images-group", "the placement group's absence to be told", func(m *api.HCloudMachine) error {
		return falseFor(m, api.ServerCreateSucceeded, api.InstanceHasNonExistingPlacementGroup)
	})
}

// snapshotOf creates another snapshot of a server.
func (w *harness) snapshotOf(t *testing.T, name string) *hcloud.Image {
	t.Helper()
	server, _, err := w.hetzner.Server.GetByName(t.Context(), name)
	must(t, err)
	result, _, err := w.hetzner.Server.CreateImage(t.Context(), server,
		&hcloud.ServerCreateImageOpts{Type: hcloud.ImageTypeSnapshot})
	must(t, err)
	must(t, w.hetzner.Action.WaitFor(t.Context(), result.Action))
	return result.Image
}

func (w *harness) testRepair(t *testing.T) {
	ctx := t.Context()
	f := w.fixture(t, "repair", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	machine := f.machine(t, "repair-cp-1", nil)
	f.bootstrap(t, machine)
	first := f.waitMachine(t, "repair-cp-1", "the machine to be ready", machineReady)

	must(t, w.cloud.VanishServer(ctx, "repair-cp-1"))
	f.touch(t, first)
	second := f.waitMachine(t, "repair-cp-1", "another server in place of the vanished one",
		func(m *api.HCloudMachine) error {
			if *m.Spec.ProviderID == *first.Spec.ProviderID {
				return fmt.Errorf("still %s", *m.Spec.ProviderID)
			}
			return machineReady(m)
		})

	server, _, err := w.hetzner.Server.GetByName(ctx, "repair-cp-1")
	must(t, err)
	action, _, err := w.hetzner.Server.Poweroff(ctx, server)
	must(t, err)
	must(t, w.hetzner.Action.WaitFor(ctx, action))
	f.touch(t, second)
	eventually(t, "the server to be powered on again", func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByName(ctx, "repair-cp-1")
		if err != nil || server.Status != hcloud.ServerStatusRunning {
			return fmt.Errorf("server is %+v (%w)", server, err)
		}
		return nil
	})
	f.waitMachine(t, "repair-cp-1", "the machine to be ready again", machineReady)
}

// touch triggers a pass over a machine now instead of at its next resync.
func (f *fixture) touch(t *testing.T, machine *api.HCloudMachine) {
	t.Helper()
	before := machine.DeepCopy()
	machine.Annotations = map[string]string{"test/touched": machine.ResourceVersion}
	must(t, f.Patch(t.Context(), machine, client.MergeFrom(before)))
}

func (w *harness) testMissingEndpoint(t *testing.T) {
	f := w.fixture(t, "endpoint", func(f *fixture) { f.infra.Spec.ControlPlaneEndpoint = nil })
	infra := f.waitCluster(t, "the missing endpoint to be told", func(infra *api.HetznerCluster) error {
		return falseFor(infra, api.LoadBalancerReady, api.LoadBalancerCreateFailed)
	})
	if message := conditions.GetMessage(infra, api.LoadBalancerReady); !strings.Contains(message, "controlPlaneEndpoint") {
		t.Errorf("the condition's message %q does not name the field", message)
	}
	before := infra.DeepCopy()
	infra.Spec.ControlPlaneEndpoint = &clusterv1.APIEndpoint{Port: 6443}
	must(t, w.Patch(t.Context(), infra, client.MergeFrom(before)))
	f.waitCluster(t, "the cluster to be ready once the endpoint is there", ready)
}

func (w *harness) testPaused(t *testing.T) {
	paused := w.fixture(t, "paused", func(f *fixture) {
		f.infra.Annotations = map[string]string{clusterv1.PausedAnnotation: "true"}
	})
	// The other cluster comes later and is ready: by then the paused one has been passed over.
	w.fixture(t, "unpaused", nil).waitCluster(t, "the other cluster to be ready", ready)
	infra := paused.waitCluster(t, "the paused cluster", func(*api.HetznerCluster) error { return nil })
	if len(infra.Finalizers) != 0 || len(infra.Status.Conditions) != 0 {
		t.Errorf("the paused cluster was worked on: %+v", infra)
	}
	before := infra.DeepCopy()
	infra.Annotations = nil
	must(t, w.Patch(t.Context(), infra, client.MergeFrom(before)))
	paused.waitCluster(t, "the cluster that is paused no longer", ready)
}

func (w *harness) testAdoption(t *testing.T) {
	ctx := t.Context()
	f := w.fixture(t, "adoption", func(f *fixture) { f.infra.Spec.ControlPlaneLoadBalancer.Name = ptr.To("survivor") })
	f.waitCluster(t, "the missing load balancer to be told", func(infra *api.HetznerCluster) error {
		return falseFor(infra, api.LoadBalancerReady, api.LoadBalancerFailedToOwn)
	})
	made, _, err := w.hetzner.LoadBalancer.Create(ctx, hcloud.LoadBalancerCreateOpts{
		Name: "survivor", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "nbg1"},
		Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin},
		Labels:    map[string]string{"kept": "yes"},
	})
	must(t, err)
	infra := f.waitCluster(t, "the load balancer to be adopted", ready)
	lb, _, err := w.hetzner.LoadBalancer.GetByID(ctx, infra.Status.ControlPlaneLoadBalancer.ID)
	must(t, err)
	if lb.ID != made.LoadBalancer.ID || lb.Labels["caph-cluster-adoption"] != "owned" || lb.Labels["kept"] != "yes" {
		t.Errorf("adopted %+v, want %d", lb, made.LoadBalancer.ID)
	}
}

func (w *harness) testToken(t *testing.T) {
	ctx := t.Context()
	f := w.fixture(t, "token", func(f *fixture) { f.infra.Spec.HetznerSecret.Key.HCloudToken = "other" })
	f.waitCluster(t, "the missing token to be told", func(infra *api.HetznerCluster) error {
		return falseFor(infra, api.HCloudTokenAvailable, api.HCloudCredentialsInvalid)
	})
	secret := &corev1.Secret{}
	must(t, w.Get(ctx, client.ObjectKey{Namespace: "token", Name: "hetzner"}, secret))
	before := secret.DeepCopy()
	secret.Data["other"] = []byte(strings.Repeat("x", 64))
	must(t, w.Patch(ctx, secret, client.MergeFrom(before)))
	// The API's answers have an X-Correlation-Id, so that the refusal is an error like any other.
	refused := regexp.MustCompile(`unable to authenticate \(unauthorized, [0-9a-f]{16}\)$`)
	f.waitCluster(t, "the refused token to be told", func(infra *api.HetznerCluster) error {
		if message := conditions.GetMessage(infra, api.NetworkReady); !refused.MatchString(message) {
			return fmt.Errorf("message is %q", message)
		}
		if !conditions.IsTrue(infra, api.HCloudTokenAvailable) {
			return errors.New("the refusal was recognised")
		}
		return falseFor(infra, api.NetworkReady, api.NetworkReconcileFailed)
	})
}

func (w *harness) testTemplate(t *testing.T) {
	f := w.fixture(t, "template", nil)
	// A template whose HetznerCluster the controller does not know yet is looked at again with the next resync only, as by
	// the real CAPH.
	f.waitCluster(t, "the controller to know the HetznerCluster", func(infra *api.HetznerCluster) error {
		if !slices.Contains(infra.Finalizers, api.ClusterFinalizer) {
			return errors.New("it has no finalizer")
		}
		return nil
	})
	template := &api.HCloudMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "template", Name: "control-plane",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
				Name: "template", UID: f.cluster.UID}},
		},
		Spec: api.HCloudMachineTemplateSpec{Template: api.HCloudMachineTemplateResource{
			Spec: api.HCloudMachineSpec{Type: "cx33", ImageName: testImage},
		}},
	}
	must(t, w.Create(t.Context(), template))
	eventually(t, "the template's capacity", func(ctx context.Context) error {
		if err := w.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
			return err
		}
		if template.Status.Capacity.Cpu().Value() != 4 || template.Status.Capacity.Memory().Value() != 8e9 ||
			template.Status.OwnerType != "Cluster" {
			return fmt.Errorf("status is %+v", template.Status)
		}
		return nil
	})
}

func (w *harness) testRateLimit(t *testing.T) {
	id, err := w.cloud.InjectFault(cloud.Fault{Kind: cloud.FaultRateLimit, Method: "POST", Path: "/networks"})
	must(t, err)
	f := w.fixture(t, "limited", nil)
	f.waitCluster(t, "the rate limit to be told", func(infra *api.HetznerCluster) error {
		return falseFor(infra, api.HetznerAPIReachable, api.RateLimitExceeded)
	})
	w.cloud.RemoveFault(id)
	infra := f.waitCluster(t, "the cluster to be ready after the wait", ready)
	if !conditions.IsTrue(infra, api.HetznerAPIReachable) {
		t.Errorf("after the wait: %v", infra.Status.Conditions)
	}
}
