package caph

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/repository"
	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

const (
	testToken = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	testImage = "talos-amd64-test"
)

// harness is a real Kubernetes API and a simulated Hetzner Cloud, with the stand-in between them. The Kubernetes API
// serves as the management and as the workload cluster, as after a pivot.
type harness struct {
	client.Client
	control    *plane.Single
	admin      []byte // kubeconfig
	standIn    []byte // kubeconfig of the stand-in's own identity
	dir        string
	cloud      *cloud.Cloud
	hetzner    *hcloud.Client
	networkTop string // first two octets of private networks

	ca          *pki.CA // of the HTTPS proxy and the webhooks
	health      string  // address of the stand-in's probes
	webhookPort string
	v1beta2     bool // Cluster API serves its objects as v1beta2, too
}

// newHarness starts a control plane whose Cluster API serves its objects as v1beta1, and as v1beta2 where that is said.
func newHarness(t *testing.T, v1beta2 bool) *harness {
	t.Helper()
	control, config := planetest.Start(t, nil)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, api.AddToScheme} {
		must(t, add(scheme))
	}
	k, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)

	third := rand.IntN(250)
	dir := t.TempDir()
	c, err := cloud.New(cloud.Config{
		Log:     slog.New(slog.DiscardHandler),
		Dir:     filepath.Join(dir, "cloud"),
		Token:   testToken,
		Machine: noMachine{},
		Listen: func(_ context.Context, address string) (net.Listener, error) {
			return net.Listen("tcp", address)
		},
		PublicServers:       netip.MustParsePrefix(fmt.Sprintf("127.251.%d.0/24", third)),
		PublicLoadBalancers: netip.MustParsePrefix(fmt.Sprintf("127.250.%d.0/24", third)),
		Latency:             cloud.InstantLatency(),
	})
	must(t, err)
	must(t, c.Resume(t.Context()))
	t.Cleanup(func() { _ = c.Close() })
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)

	w := &harness{
		Client: k, control: control, dir: dir, cloud: c, v1beta2: v1beta2,
		hetzner:    hcloud.NewClient(hcloud.WithToken(testToken), hcloud.WithEndpoint(server.URL+"/v1")),
		networkTop: fmt.Sprintf("127.%d", 252+rand.IntN(2)),
	}
	w.admin, err = control.AdminKubeconfig()
	must(t, err)
	w.standIn, err = control.Kubeconfig("caph")
	must(t, err)
	w.ca, err = pki.NewCA("test")
	must(t, err)
	pair, err := w.ca.Issue(pki.Request{CommonName: "webhooks", Hosts: []string{"127.0.0.1"}})
	must(t, err)
	_, _, err = pair.Write(dir, "tls")
	must(t, err)
	w.health, w.webhookPort = "127.0.0.1:"+standintest.FreePort(t), standintest.FreePort(t)
	w.installCRDs(t)
	standintest.Allow(t, k, "caph", Rules())
	must(t, c.EnsureSnapshot(testImage, "x86"))
	return w
}

// installCRDs installs the kinds: CAPH's with their real schemas, Cluster API's with open ones.
func (w *harness) installCRDs(t *testing.T) {
	t.Helper()
	manifest, _, err := repository.CAPHManifest(api.Versions()[len(api.Versions())-1])
	must(t, err)
	for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("kind: CustomResourceDefinition")) {
			w.create(t, document)
		}
	}
	for _, kind := range []string{"Cluster", "Machine"} {
		plural := strings.ToLower(kind) + "s"
		w.create(t, fmt.Appendf(nil, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.cluster.x-k8s.io}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[3]s}
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    schema: &open {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - {name: v1beta2, served: %[4]t, storage: false, subresources: {status: {}}, schema: *open}
`, kind, plural, strings.ToLower(kind), w.v1beta2))
	}
	eventually(t, "the kinds to be served", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{&api.HetznerClusterList{}, &api.HCloudMachineList{},
			&api.HCloudMachineTemplateList{}, &clusterv1.ClusterList{}, &clusterv1.MachineList{}} {
			if err := w.List(ctx, list); err != nil {
				return err
			}
		}
		return nil
	})
}

func (w *harness) create(t *testing.T, document []byte) {
	t.Helper()
	object := &unstructured.Unstructured{}
	must(t, yaml.Unmarshal(document, &object.Object))
	must(t, w.Create(t.Context(), object))
}

func TestMain(m *testing.M) { standintest.Main(m, Run) }

// start runs the stand-in of a version as a program of its own until the test ends. Like the original it knows only the API's real
// name, and finds its way by HTTPS_PROXY and SSL_CERT_FILE.
func (w *harness) start(t *testing.T, follow string) {
	t.Helper()
	proxy, err := w.cloud.Proxy(w.ca)
	must(t, err)
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	standintest.Start(t, w.program(t, follow, server.URL))
	standintest.Healthy(t, http.DefaultClient, "http://"+w.health+"/readyz")
}

// program is the stand-in of a version.
func (w *harness) program(t *testing.T, follow, proxy string) standintest.Program {
	t.Helper()
	return standintest.Program{
		Args: []string{
			"--kubeconfig=" + standintest.WriteFile(t, "kubeconfig", w.standIn), "--leader-elect=false",
			"--metrics-bind-address=0",
			"--health-probe-bind-address=" + w.health, "--rate-limit=100s", "--hcloudmachine-concurrency=2",
			"--webhook-cert-dir=" + w.dir, "--webhook-port=" + w.webhookPort, "--follow=" + follow,
		},
		Env: []string{
			"LAB_TIME_SCALE=0.01", "HTTPS_PROXY=" + proxy,
			"SSL_CERT_FILE=" + standintest.WriteFile(t, "ca.crt", w.ca.Cert()),
		},
		Secrets: []string{testToken},
	}
}

// fixture is one cluster in its own namespace, with the same name.
type fixture struct {
	*harness
	name    string
	cluster *clusterv1.Cluster
	infra   *api.HetznerCluster
}

// fixture creates namespace, Hetzner secret, Cluster and HetznerCluster; edit may change the latter two before.
func (w *harness) fixture(t *testing.T, name string, edit func(*fixture)) *fixture {
	t.Helper()
	must(t, w.Create(t.Context(), namespace(name)))
	third := rand.IntN(250)
	f := &fixture{harness: w, name: name,
		cluster: &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name},
			Spec: clusterv1.ClusterSpec{InfrastructureRef: &corev1.ObjectReference{
				APIVersion: api.GroupVersion.String(), Kind: "HetznerCluster", Namespace: name, Name: name,
			}},
		},
		infra: &api.HetznerCluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name,
				Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
			Spec: api.HetznerClusterSpec{
				HCloudNetwork: api.HCloudNetworkSpec{
					Enabled: true, NetworkZone: "eu-central",
					CIDRBlock: fmt.Sprintf("%s.%d.0/24", w.networkTop, third), SubnetCIDRBlock: fmt.Sprintf("%s.%d.0/25", w.networkTop,
						third),
				},
				ControlPlaneRegions:  []string{"nbg1"},
				ControlPlaneEndpoint: &clusterv1.APIEndpoint{Port: 6443},
				ControlPlaneLoadBalancer: api.LoadBalancerSpec{
					Enabled: true, Region: "nbg1", Port: 6443, Type: "lb11", Algorithm: "round_robin",
					ExtraServices: []api.LoadBalancerServiceSpec{{Protocol: "tcp", ListenPort: 50000, DestinationPort: 50000}},
				},
				HCloudPlacementGroups: []api.HCloudPlacementGroupSpec{{Name: "control-plane", Type: "spread"}},
				HetznerSecret:         api.HetznerSecretRef{Name: "hetzner", Key: api.HetznerSecretKeyRef{HCloudToken: "hcloud"}},
			},
		},
	}
	if edit != nil {
		edit(f)
	}
	must(t, w.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "hetzner"}, Data: map[string][]byte{"hcloud": []byte(testToken)},
	}))
	status := f.cluster.Status
	must(t, w.Create(t.Context(), f.cluster))
	f.cluster.Status = status
	f.cluster.Status.InfrastructureReady = true
	must(t, w.Status().Update(t.Context(), f.cluster))
	f.infra.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: name, UID: f.cluster.UID,
	}}
	must(t, w.Create(t.Context(), f.infra))
	return f
}

// machine creates a control plane Machine and its HCloudMachine, as Cluster API would, without bootstrap data.
func (f *fixture) machine(t *testing.T, name string, edit func(*api.HCloudMachine)) *clusterv1.Machine {
	t.Helper()
	labels := map[string]string{clusterv1.ClusterNameLabel: f.name, clusterv1.MachineControlPlaneLabel: ""}
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name, Labels: labels},
		Spec: clusterv1.MachineSpec{
			ClusterName: f.name, FailureDomain: ptr.To("nbg1"),
			InfrastructureRef: corev1.ObjectReference{APIVersion: api.GroupVersion.String(), Kind: "HCloudMachine",
				Namespace: f.name, Name: name},
		},
	}
	must(t, f.Create(t.Context(), machine))
	server := &api.HCloudMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.name, Name: name, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name,
				UID: machine.UID}},
		},
		Spec: api.HCloudMachineSpec{Type: "cx33", ImageName: testImage, PlacementGroupName: ptr.To("control-plane")},
	}
	if edit != nil {
		edit(server)
	}
	must(t, f.Create(t.Context(), server))
	return machine
}

// bootstrap creates the bootstrap data of a Machine.
func (f *fixture) bootstrap(t *testing.T, machine *clusterv1.Machine) {
	t.Helper()
	name := machine.Name + "-bootstrap-data"
	must(t, f.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: name},
		Data:       map[string][]byte{"value": []byte("user data of " + machine.Name)},
	}))
	before := machine.DeepCopy()
	machine.Spec.Bootstrap.DataSecretName = &name
	must(t, f.Patch(t.Context(), machine, client.MergeFrom(before)))
}

// waitCluster waits until the HetznerCluster passes check, and returns it.
func (f *fixture) waitCluster(t *testing.T, what string, check func(*api.HetznerCluster) error) *api.HetznerCluster {
	t.Helper()
	infra := &api.HetznerCluster{}
	eventually(t, what, func(ctx context.Context) error {
		*infra = api.HetznerCluster{}
		if err := f.Get(ctx, client.ObjectKeyFromObject(f.infra), infra); err != nil {
			return err
		}
		return check(infra)
	})
	return infra
}

// waitMachine does so with an HCloudMachine.
func (f *fixture) waitMachine(t *testing.T, name, what string, check func(
	*api.HCloudMachine,
) error) *api.HCloudMachine {
	t.Helper()
	machine := &api.HCloudMachine{}
	eventually(t, what, func(ctx context.Context) error {
		*machine = api.HCloudMachine{}
		if err := f.Get(ctx, client.ObjectKey{Namespace: f.name, Name: name}, machine); err != nil {
			return err
		}
		return check(machine)
	})
	return machine
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func ready(infra *api.HetznerCluster) error {
	if !infra.Status.Ready {
		return fmt.Errorf("not ready: %v", infra.Status.Conditions)
	}
	return nil
}

func machineReady(machine *api.HCloudMachine) error {
	if !machine.Status.Ready {
		return fmt.Errorf("not ready, server is %s: %v", ptr.Deref(machine.Status.InstanceState, "unknown"),
			machine.Status.Conditions)
	}
	return nil
}

// falseFor returns an error until a condition is false for a reason.
func falseFor(object conditions.Getter, condition clusterv1.ConditionType, reason string) error {
	if !conditions.IsFalse(object, condition) || conditions.GetReason(object, condition) != reason {
		return fmt.Errorf("want %s false because of %s, conditions are %v", condition, reason, object.GetConditions())
	}
	return nil
}

func gone(ctx context.Context, c client.Client, object client.Object) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("%T %s is still there (finalizers %v)", object, object.GetName(), object.GetFinalizers())
	}
	return err
}

func eventually(t *testing.T, what string, try func(context.Context) error) {
	t.Helper()
	standintest.Eventually(t, what, try)
}

func must(t *testing.T, err error) {
	t.Helper()
	standintest.Must(t, err)
}

// noMachine runs nothing: the servers of these tests need only be there.
type noMachine struct{}

func (noMachine) Start(context.Context, cloud.Server) error            { return nil }
func (noMachine) Stop(context.Context, int64, bool) error              { return nil }
func (noMachine) Delete(context.Context, int64) error                  { return nil }
func (noMachine) AddressesChanged(context.Context, cloud.Server) error { return nil }

// asNode is a client with a kubelet's identity.
func (w *harness) asNode(t *testing.T, name string) client.Client {
	t.Helper()
	kubeconfig, err := w.control.Kubeconfig("system:node:"+name, "system:nodes")
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	c, err := client.New(config, client.Options{Scheme: w.Scheme()})
	must(t, err)
	return c
}
