package caph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

func TestReleaseOf(t *testing.T) {
	for version, fails := range map[string]bool{
		"": false, "v1.0.7": false, "v1.0.12": false, "v1.0.13": false,
		"v1.1.8": false, "v1.1.13": false, "v1.0.6": true, "v1.1.7": true, "v1.2.0": true, "v2.0.7": true, "latest": true,
	} {
		if _, err := releaseOf(version); (err != nil) != fails {
			t.Errorf("%q: %v", version, err)
		}
	}
	for _, version := range api.Versions() {
		if is, err := releaseOf(version); err != nil || is.version != version {
			t.Errorf("%s is offered, and followed as %q (%v)", version, is.version, err)
		}
	}
	old, _ := releaseOf("v1.0.7")
	if old != (release{version: "v1.0.7"}) {
		t.Errorf("v1.0.7 has behaviours of later releases: %+v", old)
	}
	between, _ := releaseOf("v1.0.8")
	if !between.failsLost || between.skipsNamespaces || between.stopsIrrecoverable {
		t.Errorf("v1.0.8 is %+v", between)
	}
}

// TestStandInOfV1012 runs the stand-in of CAPH v1.0.12 where it differs from that of v1.0.7.
func TestStandInOfV1012(t *testing.T) {
	w := newHarness(t, false)
	said, err := standintest.Run(t, w.program(t, "v1.1.8", ""))
	if err == nil || !strings.Contains(said, `no matches for kind "Cluster" in version "cluster.x-k8s.io/v1beta2"`) {
		t.Errorf("the stand-in of v1.1.8 with a core that does not serve v1beta2: %v\n%s", err, said)
	}
	w.start(t, "v1.0.12")
	t.Run("life of a cluster", w.testLife)
	t.Run("a server that vanishes", w.testLost)
	t.Run("out of stock", w.testIrrecoverable)
	t.Run("a namespace that is skipped", w.testSkippedNamespace)
	t.Run("a machine without provider ID", w.testDeletedUnknown)
}

// TestStandInOfV118 runs the stand-in of CAPH v1.1.8 where it differs from that of v1.0.12.
func TestStandInOfV118(t *testing.T) {
	w := newHarness(t, true)
	w.start(t, "v1.1.8")
	t.Run("life of a cluster", w.testLife)
	t.Run("a server that vanishes", w.testRemediated)
	t.Run("a server that is not created in time", w.testOverdue)
	t.Run("a server that is switched off", w.testSwitchedOff)
	t.Run("a name that is taken", w.testAdopted)
	t.Run("the secret of the CCM", w.testCCMSecret)
}

// testRemediated: the Machine is marked for remediation, and no other server is created for its HCloudMachine.
func (w *harness) testRemediated(t *testing.T) {
	f := w.fixture(t, "remediated", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	machine := f.machine(t, "remediated-cp-1", nil)
	f.bootstrap(t, machine)
	made := f.waitMachine(t, "remediated-cp-1", "the machine to be ready", func(m *api.HCloudMachine) error {
		if m.Status.BootState != api.BootStateOperatingSystemRunning || m.Status.BootStateSince == nil ||
			!conditions.IsTrue(m, api.ServerProvisioned) {
			return fmt.Errorf("status is %+v", m.Status)
		}
		return machineReady(m)
	})
	server, _, err := w.hetzner.Server.GetByName(t.Context(), made.Name)
	must(t, err)
	_, _, err = w.hetzner.Server.DeleteWithResult(t.Context(), server)
	must(t, err)
	f.touch(t, made)
	failed := f.waitMachine(t, made.Name, "the machine to fail", func(m *api.HCloudMachine) error {
		if m.Status.BootState != api.BootStateProvisioningFailed || m.Status.FailureReason != nil {
			return fmt.Errorf("status is %+v", m.Status)
		}
		return falseFor(m, api.ServerAvailable, api.NoHCloudServerFound)
	})
	must(t, w.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if _, marked := machine.Annotations[clusterv1.RemediateMachineAnnotation]; !marked {
		t.Errorf("the Machine's annotations are %v", machine.Annotations)
	}
	f.touch(t, failed)
	w.noServer(t, made.Name)
}

func (w *harness) noServer(t *testing.T, name string) {
	t.Helper()
	stays(t, func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByName(ctx, name)
		if err == nil && server != nil {
			err = fmt.Errorf("server %d was created", server.ID)
		}
		return err
	})
}

// testOverdue: six minutes after its first pass a machine without a server is given up, and stays so when there is stock
// again.
func (w *harness) testOverdue(t *testing.T) {
	f := w.fixture(t, "overdue", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	id, err := w.cloud.InjectFault(cloud.Fault{Kind: cloud.FaultOutOfStock, ServerType: "cx33"})
	must(t, err)
	machine := f.machine(t, "overdue-cp-1", nil)
	f.bootstrap(t, machine)
	waits := f.waitMachine(t, "overdue-cp-1", "the order to be given up", func(m *api.HCloudMachine) error {
		if m.Status.BootState != "" || m.Status.BootStateSince == nil {
			return fmt.Errorf("status is %+v", m.Status)
		}
		return falseFor(m, api.ServerCreateSucceeded, api.ServerCreateFailedIrrecoverable)
	})
	failed := f.waitMachine(t, waits.Name, "the machine to fail", func(m *api.HCloudMachine) error {
		if m.Status.BootState == api.BootStateProvisioningFailed && m.Spec.ProviderID == nil {
			return falseFor(m, api.ServerCreateSucceeded, api.ServerCreateFailedIrrecoverable)
		}
		// A pass that began before this may have written its own time over it.
		if time.Since(m.Status.BootStateSince.Time) < bootDeadline {
			before := m.DeepCopy()
			m.Status.BootStateSince = ptr.To(metav1.NewTime(time.Now().Add(-bootDeadline - time.Second)))
			must(t, w.Status().Patch(t.Context(), m, client.MergeFrom(before)))
			f.touch(t, m)
		}
		return fmt.Errorf("status is %+v", m.Status)
	})
	w.cloud.RemoveFault(id)
	f.touch(t, failed)
	w.noServer(t, failed.Name)
	// How long ago that was may differ between the two.
	message, _, found := strings.Cut(conditions.GetMessage(failed, api.ServerCreateSucceeded), ", in this state since")
	if !found || !strings.Contains(message, "resource_unavailable") || !strings.Contains(message, "(boot state unset timed out") {
		t.Errorf("its condition says %q", message)
	}
	for kind, reason := range map[string]string{"Ready": "NotReady", "ServerCreated": "CreationFailedIrrecoverably"} {
		if c := meta.FindStatusCondition(failed.Status.V1Beta2.Conditions, kind); c == nil || c.Reason != reason ||
			c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, message) {
			t.Errorf("in status.v1beta2 %s is %+v", kind, c)
		}
	}
	must(t, w.Get(t.Context(), client.ObjectKeyFromObject(machine), machine))
	if _, marked := machine.Annotations[clusterv1.RemediateMachineAnnotation]; !marked {
		t.Errorf("the Machine's annotations are %v", machine.Annotations)
	}
}

// testSwitchedOff: a machine whose system ran stays ready, and its server is not switched on.
func (w *harness) testSwitchedOff(t *testing.T) {
	f := w.fixture(t, "off", nil)
	cluster := f.waitCluster(t, "the cluster to be ready", ready)
	f.bootstrap(t, f.machine(t, "off-cp-1", nil))
	runs := f.waitMachine(t, "off-cp-1", "the machine to be ready", machineReady)
	for kind, reasons := range map[string][]metav1.Condition{
		"HetznerCluster": cluster.Status.V1Beta2.Conditions, "HCloudMachine": runs.Status.V1Beta2.Conditions} {
		for _, c := range reasons {
			if c.Status != metav1.ConditionTrue && !strings.HasPrefix(c.Type, "TargetCluster") && c.Type != "Ready" {
				t.Errorf("%s: in status.v1beta2 is %+v", kind, c)
			}
		}
	}
	for kind, reason := range map[string]string{"Ready": "Ready", "ServerCreated": "Created",
		"ServerProvisioned": "Provisioned", "ServerAvailable": "Available", "HCloudTokenAvailable": "Available"} {
		if c := meta.FindStatusCondition(runs.Status.V1Beta2.Conditions, kind); c == nil || c.Reason != reason {
			t.Errorf("in status.v1beta2 %s is %+v", kind, c)
		}
	}
	server, _, err := w.hetzner.Server.GetByName(t.Context(), "off-cp-1")
	must(t, err)
	_, _, err = w.hetzner.Server.Poweroff(t.Context(), server)
	must(t, err)
	eventually(t, "the server to be off", func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByID(ctx, server.ID)
		if err == nil && server.Status != hcloud.ServerStatusOff {
			err = fmt.Errorf("it is %s", server.Status)
		}
		return err
	})
	f.touch(t, runs)
	f.waitMachine(t, runs.Name, "the machine to tell of it", func(m *api.HCloudMachine) error {
		if got := ptr.Deref(m.Status.InstanceState, ""); got != string(hcloud.ServerStatusOff) {
			return fmt.Errorf("its server is %s", got)
		}
		return nil
	})
	stays(t, func(ctx context.Context) error {
		m := &api.HCloudMachine{}
		if err := w.Get(ctx, client.ObjectKeyFromObject(runs), m); err != nil {
			return err
		}
		server, _, err := w.hetzner.Server.GetByID(ctx, server.ID)
		if err == nil && (server.Status != hcloud.ServerStatusOff || !m.Status.Ready) {
			err = fmt.Errorf("the server is %s, the machine's status %+v", server.Status, m.Status)
		}
		return err
	})
}

// testAdopted: a server with the machine's name, of a create whose reply was lost, is taken over.
func (w *harness) testAdopted(t *testing.T) {
	f := w.fixture(t, "adopted", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	images, err := w.hetzner.Image.AllWithOpts(t.Context(), hcloud.ImageListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: api.TagImageName + "==" + testImage}})
	must(t, err)
	made, _, err := w.hetzner.Server.Create(t.Context(), hcloud.ServerCreateOpts{Name: "adopted-cp-1",
		ServerType: &hcloud.ServerType{Name: "cx33"}, Image: images[0], Location: &hcloud.Location{Name: "nbg1"}})
	must(t, err)
	f.bootstrap(t, f.machine(t, "adopted-cp-1", nil))
	f.waitMachine(t, "adopted-cp-1", "the machine to have the server", func(m *api.HCloudMachine) error {
		if want := fmt.Sprintf("hcloud://%d", made.Server.ID); ptr.Deref(m.Spec.ProviderID, "") != want {
			return fmt.Errorf("provider ID %v, want %s", m.Spec.ProviderID, want)
		}
		return nil
	})
}

// testCCMSecret: the workload cluster, which is this one, has the Secret that the CCM's chart reads.
func (w *harness) testCCMSecret(t *testing.T) {
	secret := &corev1.Secret{}
	eventually(t, "the secret hcloud", func(ctx context.Context) error {
		return w.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: ccmSecret}, secret)
	})
	if string(secret.Data["token"]) != testToken || len(secret.Data["network"]) == 0 {
		t.Errorf("it has the keys %v", slices.Sorted(maps.Keys(secret.Data)))
	}
}

// testLost: the machine fails, no other server is created for it, and it is deleted without one.
func (w *harness) testLost(t *testing.T) {
	f := w.fixture(t, "lost", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	machine := f.machine(t, "lost-cp-1", nil)
	f.bootstrap(t, machine)
	first := f.waitMachine(t, "lost-cp-1", "the machine to be ready", machineReady)

	must(t, w.cloud.VanishServer(t.Context(), "lost-cp-1"))
	f.touch(t, first)
	failed := f.waitMachine(t, "lost-cp-1", "the machine to fail", func(m *api.HCloudMachine) error {
		if ptr.Deref(m.Status.FailureReason, "") != "UpdateError" ||
			!strings.Contains(ptr.Deref(m.Status.FailureMessage, ""), *first.Spec.ProviderID+" not found") {
			return fmt.Errorf("status is %+v", m.Status)
		}
		return falseFor(m, api.ServerAvailable, api.ServerNotFound)
	})
	f.touch(t, failed)
	stays(t, func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByName(ctx, "lost-cp-1")
		if err == nil && server != nil {
			err = fmt.Errorf("server %d was created", server.ID)
		}
		return err
	})
	must(t, w.Delete(t.Context(), failed))
	eventually(t, "the machine to be deleted", func(ctx context.Context) error { return gone(ctx, w.Client, failed) })
}

// testIrrecoverable: a server that is out of stock is ordered once, until something changes the machine.
func (w *harness) testIrrecoverable(t *testing.T) {
	f := w.fixture(t, "stock", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	id, err := w.cloud.InjectFault(cloud.Fault{Kind: cloud.FaultOutOfStock, ServerType: "cx33"})
	must(t, err)
	machine := f.machine(t, "stock-cp-1", nil)
	f.bootstrap(t, machine)
	stopped := f.waitMachine(t, "stock-cp-1", "the order to be given up", func(m *api.HCloudMachine) error {
		if message := conditions.GetMessage(m, api.ServerCreateSucceeded); !strings.Contains(message, "resource_unavailable") {
			return fmt.Errorf("message is %q", message)
		}
		return falseFor(m, api.ServerCreateSucceeded, api.ServerCreateFailedIrrecoverable)
	})
	time.Sleep(2 * time.Second) // for the passes that were triggered before
	w.cloud.RemoveFault(id)
	stays(t, func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByName(ctx, "stock-cp-1")
		if err == nil && server != nil {
			err = errors.New("the server was ordered again")
		}
		return err
	})
	f.touch(t, stopped)
	f.waitMachine(t, "stock-cp-1", "the machine to be ready after a change", machineReady)
}

func (w *harness) testSkippedNamespace(t *testing.T) {
	f := w.fixture(t, "skipped", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "skipped"}}
	must(t, w.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	set := func(value string) {
		before := namespace.DeepCopy()
		namespace.Annotations = map[string]string{api.SkipNamespace: value}
		must(t, w.Patch(t.Context(), namespace, client.MergeFrom(before)))
	}
	set("true")
	time.Sleep(time.Second) // for the stand-in's cache
	machine := f.machine(t, "skipped-cp-1", nil)
	f.bootstrap(t, machine)
	stays(t, func(ctx context.Context) error {
		server, _, err := w.hetzner.Server.GetByName(ctx, "skipped-cp-1")
		if err == nil && server != nil {
			err = errors.New("a server was created")
		}
		return err
	})
	set("false")
	time.Sleep(time.Second)
	made := &api.HCloudMachine{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "skipped", Name: "skipped-cp-1"}, made))
	f.touch(t, made)
	f.waitMachine(t, "skipped-cp-1", "the machine to be ready", machineReady)
}

// testDeletedUnknown: a server is known by the machine's provider ID alone; by its labels it is not looked for.
func (w *harness) testDeletedUnknown(t *testing.T) {
	f := w.fixture(t, "unknown", nil)
	f.waitCluster(t, "the cluster to be ready", ready)
	f.machine(t, "unknown-cp-1", nil) // its Machine has no bootstrap data: no server is ordered
	machine := f.waitMachine(t, "unknown-cp-1", "the machine to wait", func(m *api.HCloudMachine) error {
		return falseFor(m, api.BootstrapReady, api.BootstrapNotReady)
	})
	// As after a lost reply: the server was created, and the machine has not learned of it.
	images, err := w.hetzner.Image.AllWithOpts(t.Context(), hcloud.ImageListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: api.TagImageName + "==" + testImage}})
	must(t, err)
	made, _, err := w.hetzner.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "unknown-cp-1", ServerType: &hcloud.ServerType{Name: "cx33"}, Image: images[0],
		Location: &hcloud.Location{Name: "nbg1"}, Labels: map[string]string{api.TagPrefix + "unknown": api.TagOwned,
			api.TagMachineName: "unknown-cp-1", api.TagMachineType: "control_plane"},
	})
	must(t, err)
	must(t, w.Delete(t.Context(), machine))
	eventually(t, "the machine to be deleted", func(ctx context.Context) error { return gone(ctx, w.Client, machine) })
	if left, _, err := w.hetzner.Server.GetByID(t.Context(), made.Server.ID); err != nil || left == nil {
		t.Errorf("the server that the machine does not know: %v, %v", left, err)
	}
}

// stays asserts that something holds for a while.
func stays(t *testing.T, check func(context.Context) error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		must(t, check(t.Context()))
	}
}
