package steps

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	xcrypto "github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/repo"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/cluster"
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/capi"
	"github.com/slipway-k8s/slipway/internal/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/providers"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/platform"
)

type object = map[string]any

// loadBalancer is the address that the world gives the cluster; nothing listens there.
const loadBalancer = "127.0.0.9"

// world is Hetzner, a management and a workload cluster, and everything that works in them, as far as the steps can see.
type world struct {
	mgmt, workload *kubetest.Server
	hetzner        *hetznertest.Server
	provider       *fakeProvider
	talosconfig    []byte
	charts         string // address of the chart repository
	state          string // folder
	log            *safeBuffer

	mu    sync.Mutex
	inits []clusterctl.InitOptions
	move  func(context.Context, clusterctl.MoveOptions) error
	urls  []string // of the providers, as clusterctl was configured at the last init
}

func capiResource(kind, plural, group, version string) kubetest.Resource {
	return kubetest.Resource{Group: group, Version: version, Kind: kind, Plural: plural}
}

// capiKinds are the kinds of Cluster API and its providers, as far as the steps look at them.
func capiKinds() []kubetest.Resource {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	return []kubetest.Resource{
		capiResource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1"),
		capiResource("Machine", "machines", "cluster.x-k8s.io", "v1beta1"),
		capiResource("MachineDeployment", "machinedeployments", "cluster.x-k8s.io", "v1beta1"),
		capiResource("TalosConfigTemplate", "talosconfigtemplates", "bootstrap.cluster.x-k8s.io", "v1alpha3"),
		capiResource("MachineHealthCheck", "machinehealthchecks", "cluster.x-k8s.io", "v1beta1"),
		capiResource("HetznerCluster", "hetznerclusters", infrastructure, "v1beta1"),
		capiResource("HCloudMachine", "hcloudmachines", infrastructure, "v1beta1"),
		capiResource("HCloudMachineTemplate", "hcloudmachinetemplates", infrastructure, "v1beta1"),
		capiResource("TalosConfig", "talosconfigs", "bootstrap.cluster.x-k8s.io", "v1alpha3"),
		capiResource("TalosControlPlane", "taloscontrolplanes", "controlplane.cluster.x-k8s.io", "v1alpha3"),
		capiResource("Provider", "providers", "clusterctl.cluster.x-k8s.io", "v1alpha3"),
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		mgmt:     kubetest.New("management", capiKinds()...),
		workload: kubetest.New("workload", kubetest.Resource{Group: "talos.dev", Version: "v1alpha1", Kind: "ServiceAccount", Plural: "serviceaccounts"}), hetzner: hetznertest.New(), charts: serveCharts(t),
		talosconfig: newTalosconfig(t), state: t.TempDir(), log: &safeBuffer{},
	}
	w.provider = &fakeProvider{kubeconfig: w.mgmt.Kubeconfig(), exists: true}
	w.hetzner.SetImages(hetznertest.Image(1, config.Defaults().Image("amd64"), "x86", "available"))
	w.mgmt.React, w.workload.React = w.reactManagement, w.reactWorkload
	t.Cleanup(func() {
		w.hetzner.Close()
		for _, s := range []*kubetest.Server{w.mgmt, w.workload} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return w
}

func (w *world) config() config.Config {
	c := config.Defaults()
	c.CiliumRepository, c.HCloudCCMRepository, c.TalosCCMRepository = w.charts, w.charts, w.charts
	return c
}

func (w *world) tools() platform.Tools {
	return platform.Tools{
		Hetzner: w.hetzner.Client(hetznertest.Token), Token: platform.NewSecret(hetznertest.Token), Management: w.provider,
		Files: platform.FilesIn(filepath.Join(w.state, "state")), Log: w.log, Overrides: filepath.Join(w.state, "own"),
		Clusterctl: func(_ context.Context, c clusterctlconfig.Client) (platform.Clusterctl, error) {
			return &fakeClusterctl{w, c}, nil
		},
		Talos: func([]byte) (platform.TalosClient, error) { return healthyTalos{}, nil },
	}
}

// Run runs steps of a graph, with what they say in the test's log. Nothing in the environment takes longer than milliseconds, but for a kind
// that is not offered, which is waited for.
func Run(t *testing.T, g *flow.Graph, targets []string, journal flow.Journal, observe func(flow.Event)) (*flow.Report, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return g.Run(ctx, flow.Options{Journal: journal, Targets: targets, Observe: func(e flow.Event) {
		t.Log(e.Kind, e.Step, e.Message, e.Err)
		if observe != nil {
			observe(e)
		}
	}})
}

// writes counts everything that anybody was asked to change.
func (w *world) writes() int {
	return len(w.mgmt.Writes()) + len(w.workload.Writes()) + len(w.hetzner.Writes())
}

const (
	capiAPI = "cluster.x-k8s.io/v1beta1"
	caph    = "infrastructure.cluster.x-k8s.io/v1beta1"
	cacpt   = "controlplane.cluster.x-k8s.io/v1alpha3"
)

// reactManagement plays CAPH, CABPT and CACPPT.
func (w *world) reactManagement(o *unstructured.Unstructured) {
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	switch o.GetKind() {
	case "HetznerCluster":
		if capi.Text(o, "spec", "controlPlaneEndpoint", "host") == "" {
			w.hetzner.SetNetworks(schema.Network{ID: 77, Labels: owned, IPRange: "10.10.0.0/16"})
			w.hetzner.SetLoadBalancers(hetznertest.LoadBalancer(9, "k8s-kube-apiserver-a1b2c", loadBalancer, owned, 6443, 50000))
			w.mgmt.Change(caph, "HetznerCluster", config.Namespace, "k8s", object{"spec": object{"controlPlaneEndpoint": object{"host": loadBalancer}}})
		}
	case "TalosControlPlane":
		if w.mgmt.Get(capiAPI, "Machine", config.Namespace, "k8s-control-plane-0") != nil {
			return // made already
		}
		var servers []schema.Server
		for i := range 3 {
			name := fmt.Sprintf("k8s-control-plane-%d", i)
			private := fmt.Sprintf("10.10.64.%d", 2+i)
			servers = append(servers, schema.Server{ID: int64(100 + i), Name: name, Status: "running", Labels: owned, PrivateNet: []schema.ServerPrivateNet{{IP: private}}})
			labels := object{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
			w.mgmt.Put(kubetest.Object(caph, "HCloudMachine", config.Namespace, name, object{
				"metadata": object{"labels": labels}, "spec": object{"providerID": fmt.Sprintf("hcloud://%d", 100+i)}, "status": object{"instanceState": "running"},
			}))
			w.mgmt.Put(kubetest.Object(capiAPI, "Machine", config.Namespace, name, object{
				"metadata": object{"labels": labels}, "spec": object{"infrastructureRef": object{"name": name}},
				"status": object{"addresses": []any{object{"type": "InternalIP", "address": private}, object{"type": "ExternalIP", "address": "127.0.1." + fmt.Sprint(i)}}},
			}))
			w.workload.Put(kubetest.Object("v1", "Node", "", name, object{
				"metadata": object{"labels": object{capi.ControlPlaneRole: ""}},
				"spec":     object{"taints": []any{object{"key": situation.UninitializedTaint, "effect": "NoSchedule"}}},
				"status":   object{"nodeInfo": object{"kubeletVersion": "v1.32.2"}, "addresses": []any{object{"type": "InternalIP", "address": private}}},
			}))
		}
		w.hetzner.SetServers(servers...)
		secret := func(name, key string, value []byte) {
			w.mgmt.Put(kubetest.Object("v1", "Secret", config.Namespace, name, object{"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s"}}, "data": object{key: value}}))
		}
		secret("k8s-kubeconfig", "value", w.workload.Kubeconfig())
		secret("k8s-talosconfig", "talosconfig", w.talosconfig)
		w.mgmt.Change(cacpt, "TalosControlPlane", config.Namespace, "k8s-control-plane", object{"status": object{"initialized": true}})
	}
}

// reactWorkload plays the controllers of workloads, Cilium and the Hetzner CCM.
func (w *world) reactWorkload(o *unstructured.Unstructured) {
	ready := object{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}
	if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
		return
	}
	w.workload.Change("apps/v1", o.GetKind(), o.GetNamespace(), o.GetName(), object{"status": ready})
	for i := range 3 {
		name := fmt.Sprintf("k8s-control-plane-%d", i)
		switch o.GetName() {
		case "cilium":
			w.workload.Change("v1", "Node", "", name, object{"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}}})
		case "hcloud-cloud-controller-manager":
			w.workload.Change("v1", "Node", "", name, object{"spec": object{"providerID": fmt.Sprintf("hcloud://%d", 100+i), "taints": nil}})
			w.mgmt.Change(capiAPI, "Machine", config.Namespace, name, object{"status": object{"nodeRef": object{"name": name}}})
		}
	}
}

// fakeClusterctl installs inventory objects and Deployments, as far as anyone looks at them.
type fakeClusterctl struct {
	w      *world
	config clusterctlconfig.Client
}

func (f *fakeClusterctl) Init(_ context.Context, o clusterctl.InitOptions) ([]clusterctl.Components, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.inits = append(f.w.inits, o)
	f.w.urls = nil
	listed, err := f.config.Providers().List()
	if err != nil {
		return nil, err
	}
	for _, p := range listed {
		f.w.urls = append(f.w.urls, p.URL())
	}
	f.w.install(config.Defaults())
	return nil, nil
}

func (f *fakeClusterctl) Move(ctx context.Context, o clusterctl.MoveOptions) error {
	return f.w.move(ctx, o)
}

func (f *fakeClusterctl) CertManager(string) (cluster.CertManagerClient, error) {
	return &fakeCertManager{w: f.w}, nil
}

// fakeCertManager counts the Deployments of cert-manager, of which there are to be three.
type fakeCertManager struct {
	cluster.CertManagerClient
	w *world
}

// certManagerOfTests is the version that clusterctl wants.
const certManagerOfTests = "v1.16.1"

var certManagerDeployments = []string{"cert-manager", "cert-manager-cainjector", "cert-manager-webhook"}

func (f *fakeCertManager) PlanUpgrade(context.Context) (cluster.CertManagerUpgradePlan, error) {
	plan := cluster.CertManagerUpgradePlan{ExternallyManaged: true, To: certManagerOfTests}
	here := 0
	for _, name := range certManagerDeployments {
		if o := f.w.mgmt.Get("apps/v1", "Deployment", providers.CertManagerNamespace, name); o != nil {
			here++
			plan.ExternallyManaged, plan.From = false, o.GetAnnotations()["version"]
		}
	}
	plan.ShouldUpgrade = !plan.ExternallyManaged && (here < len(certManagerDeployments) || plan.From != plan.To)
	return plan, nil
}

// EnsureLatestVersion installs all of it, and tries it out in a namespace that is still on its way out when it returns.
func (f *fakeCertManager) EnsureLatestVersion(context.Context) error {
	for _, name := range certManagerDeployments {
		f.w.mgmt.Put(certManagerDeployment(name, certManagerOfTests))
	}
	f.w.mgmt.Put(testOnItsWayOut())
	return nil
}

func testOnItsWayOut() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{
		"name": providers.CertManagerTestNamespace, "deletionTimestamp": "2026-05-04T12:00:00Z", "finalizers": []any{"test"},
	}}}
}

func certManagerDeployment(name, version string) *unstructured.Unstructured {
	return kubetest.Object("apps/v1", "Deployment", providers.CertManagerNamespace, name, object{
		"metadata": object{"labels": object{capi.CoreLabel: capi.CertManagerCore}, "annotations": object{"version": version}},
		"spec":     object{"replicas": 1}, "status": object{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
	})
}

func (w *world) install(c config.Config) {
	for _, p := range providers.Of(c) {
		labels := object{capi.ProviderLabel: p.Label}
		w.mgmt.Put(kubetest.Object("clusterctl.cluster.x-k8s.io/v1alpha3", "Provider", p.Label, p.Label, object{"metadata": object{"labels": labels}, "version": p.Version}))
		w.mgmt.Put(kubetest.Object("apps/v1", "Deployment", p.Label, "manager", object{
			"metadata": object{"labels": labels}, "spec": object{"replicas": 1}, "status": object{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
		}))
	}
}

// healthyTalos answers on every address.
type healthyTalos struct{}

func (healthyTalos) Ask(context.Context, string) (talos.Node, error) {
	return talos.Node{Version: "v1.12.2", Etcd: "Running", Healthy: true}, nil
}

func (healthyTalos) EtcdMembers(context.Context, string) ([]talos.EtcdMember, error) {
	return []talos.EtcdMember{{Name: "k8s-control-plane-0"}, {Name: "k8s-control-plane-1"}, {Name: "k8s-control-plane-2"}}, nil
}

func (healthyTalos) EtcdSnapshot(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("snapshot")), nil
}

func (h healthyTalos) AskBy(ctx context.Context, r talos.Route) (talos.Node, error) {
	return h.Ask(ctx, r.Endpoint)
}

func (h healthyTalos) EtcdMembersOf(ctx context.Context, r talos.Route) ([]talos.EtcdMember, error) {
	return h.EtcdMembers(ctx, r.Endpoint)
}

func (healthyTalos) EtcdIndex(context.Context, talos.Route) (uint64, error) { return 1, nil }

func (h healthyTalos) EtcdSnapshotBy(ctx context.Context, r talos.Route) (io.ReadCloser, error) {
	return h.EtcdSnapshot(ctx, r.Endpoint)
}

func (healthyTalos) WipeEphemeral(context.Context, talos.Route) error {
	return errors.New("a server that is healthy is not wiped")
}

func (healthyTalos) HasEtcdData(context.Context, talos.Route) (bool, error) { return true, nil }

func (healthyTalos) HasSnapshot(context.Context, talos.Route, io.Reader, int64) (bool, error) {
	return false, nil
}

func (healthyTalos) UploadSnapshot(context.Context, talos.Route, io.Reader) error {
	return errors.New("an etcd that is healthy is not recovered")
}

func (healthyTalos) BootstrapRecovered(context.Context, talos.Route) error { return talos.ErrEtcdData }

// fakeProvider gives out one management cluster.
type fakeProvider struct {
	kubeconfig []byte
	exists     bool
	err        error // of Exists
	ensured    int
}

func (p *fakeProvider) Name() string { return "fake" }

func (p *fakeProvider) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	p.ensured++
	return p.kubeconfig, nil
}

func (p *fakeProvider) Exists(context.Context, string) (bool, error) { return p.exists, p.err }

func (p *fakeProvider) Delete(context.Context, string) error { return nil }

// serveCharts serves a small chart for each of the three releases, at the default versions.
func serveCharts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	d := config.Defaults()
	for _, c := range []struct {
		chart         bootstrap.Chart
		version, kind string
	}{{bootstrap.Cilium(), d.CiliumVersion, "DaemonSet"}, {bootstrap.HCloudCCM(), d.HCloudCCMVersion, "Deployment"}, {bootstrap.TalosCCM(), d.TalosCCMVersion, "DaemonSet"}} {
		manifest := fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: {{ .Release.Name }}}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n", c.kind)
		if c.chart.Name == bootstrap.TalosCCM().Name {
			manifest += "---\napiVersion: talos.dev/v1alpha1\nkind: ServiceAccount\nmetadata: {name: secrets}\n"
		}
		ch := &chart.Chart{
			Metadata:  &chart.Metadata{APIVersion: "v2", Name: c.chart.Name, Version: c.version},
			Templates: []*chart.File{{Name: "templates/workload.yaml", Data: []byte(manifest)}},
		}
		if _, err := chartutil.Save(ch, dir); err != nil {
			t.Fatal(err)
		}
	}
	index, err := repo.IndexDirectory(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.WriteFile(filepath.Join(dir, "index.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(s.Close)
	return s.URL
}

// newTalosconfig makes credentials of a cluster of their own, pointing at one public address as CABPT's do at first.
func newTalosconfig(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), NotAfter: time.Now().Add(365 * 24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c := talosconfig.NewConfig("k8s", []string{"127.0.1.0"}, crt, &xcrypto.PEMEncodedCertificateAndKey{Crt: crt, Key: []byte("key")})
	data, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// safeBuffer is a buffer for several writers.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// set applies KEY=VALUE as the command does.
func set(t *testing.T, c *config.Config, kv string) {
	t.Helper()
	key, value, _ := strings.Cut(kv, "=")
	for _, v := range config.Variables() {
		if v.Name == key {
			if err := v.Set(c, value); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no variable %s", key)
}

// listener collects what a wait says.
type listener struct{ lines []string }

func (l *listener) say(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}
