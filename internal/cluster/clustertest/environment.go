// Package clustertest is a fake Hetzner, management and workload cluster in memory, for tests of steps and of what uses
// them.
package clustertest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
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
	clusterctlconfig "sigs.k8s.io/cluster-api/cmd/clusterctl/client/config"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/platform"
)

// Map is an object of a manifest, or a part of one.
type Map = map[string]any

// LoadBalancerIP is the address that the environment gives the cluster; nothing listens there.
const LoadBalancerIP = hetznertest.EndpointIP

// Environment is Hetzner, a management and a workload cluster, and everything that works in them, as far as the steps
// can see.
type Environment struct {
	Management, Workload *kubetest.Server
	Hetzner              *hetznertest.Server
	Provider             *Provider
	Talosconfig          []byte
	Charts               string // address of the chart repository
	State                string // folder
	Log                  *Buffer

	// Namespace is the one of the cluster's objects in the management cluster; empty: default.
	Namespace string

	Mu           sync.Mutex
	Inits        []clusterctl.InitOptions
	Upgrades     []clusterctl.ApplyUpgradeOptions // of the providers
	Contracts    []string                         // that clusterctl was made for, at each init and upgrade
	ProviderURLs []string                         // of the providers, as clusterctl was configured at the last init
}

// Resource is a kind that a fake API server serves.
func Resource(kind, plural, group, version string) kubetest.Resource {
	return kubetest.Resource{Group: group, Version: version, Kind: kind, Plural: plural}
}

// ClusterAPIKinds are the kinds of Cluster API and its providers, as far as the steps look at them.
func ClusterAPIKinds() []kubetest.Resource {
	const infrastructure = "infrastructure.cluster.x-k8s.io"
	return []kubetest.Resource{
		Resource("Cluster", "clusters", "cluster.x-k8s.io", "v1beta1"),
		Resource("Machine", "machines", "cluster.x-k8s.io", "v1beta1"),
		Resource("MachineDeployment", "machinedeployments", "cluster.x-k8s.io", "v1beta1"),
		Resource("TalosConfigTemplate", "talosconfigtemplates", "bootstrap.cluster.x-k8s.io", "v1alpha3"),
		Resource("MachineHealthCheck", "machinehealthchecks", "cluster.x-k8s.io", "v1beta1"),
		Resource("HetznerCluster", "hetznerclusters", infrastructure, "v1beta1"),
		Resource("HCloudMachine", "hcloudmachines", infrastructure, "v1beta1"),
		Resource("HCloudMachineTemplate", "hcloudmachinetemplates", infrastructure, "v1beta1"),
		Resource("TalosConfig", "talosconfigs", "bootstrap.cluster.x-k8s.io", "v1alpha3"),
		Resource("TalosControlPlane", "taloscontrolplanes", "controlplane.cluster.x-k8s.io", "v1alpha3"),
		Resource("Provider", "providers", "clusterctl.cluster.x-k8s.io", "v1alpha3"),
	}
}

// New starts an environment, which ends with the test.
func New(t *testing.T) *Environment {
	t.Helper()
	w := &Environment{
		Management: kubetest.New("management", ClusterAPIKinds()...),
		Workload: kubetest.New("workload",
			kubetest.Resource{Group: "talos.dev", Version: "v1alpha1", Kind: "ServiceAccount", Plural: "serviceaccounts"},
			Resource("Provider", "providers", "clusterctl.cluster.x-k8s.io", "v1alpha3"),
			Resource("GitRepository", "gitrepositories", "source.toolkit.fluxcd.io", "v1"),
			Resource("OCIRepository", "ocirepositories", "source.toolkit.fluxcd.io", "v1"),
			Resource("Kustomization", "kustomizations", "kustomize.toolkit.fluxcd.io", "v1"),
			Resource("HelmRelease", "helmreleases", "helm.toolkit.fluxcd.io", "v2")),
		Hetzner: hetznertest.New(), Charts: ServeCharts(t),
		Talosconfig: NewTalosconfig(t), State: t.TempDir(), Log: &Buffer{},
	}
	w.Provider = &Provider{Kubeconfig: w.Management.Kubeconfig(), There: true}
	w.Hetzner.SetImages(hetznertest.Image(1, config.Defaults().Image("amd64"), "x86", "available"))
	w.Management.React, w.Workload.React = w.ReactManagement, w.ReactWorkload
	t.Cleanup(func() {
		w.Hetzner.Close()
		for _, s := range []*kubetest.Server{w.Management, w.Workload} {
			s.CloseClientConnections()
			s.Close()
		}
	})
	return w
}

// Config is the default configuration with the charts of the environment.
func (w *Environment) Config() config.Config {
	c := config.Defaults()
	c.CiliumRepository, c.HCloudCCMRepository, c.TalosCCMRepository = w.Charts, w.Charts, w.Charts
	c.AddonsRepository = w.Charts
	c.Namespace = w.namespace()
	return c
}

// Tools work with the environment's clusters, Hetzner and state folder.
func (w *Environment) Tools() platform.Tools {
	tools := platform.Tools{
		Hetzner: w.Hetzner.Client(nil), Token: platform.NewSecret(hetznertest.Token), Management: w.Provider,
		Files: platform.FilesIn(filepath.Join(w.State, "state")), Log: w.Log, Overrides: filepath.Join(w.State, "own"),
	}
	tools.Clusterctl = func(_ context.Context, c clusterctlconfig.Client, contract string) (platform.Clusterctl, error) {
		return &Clusterctl{w, c, contract}, nil
	}
	tools.Talos = func([]byte) (talos.Client, error) { return HealthyTalos{}, nil }
	return tools
}

// Run runs steps of a graph, with what they say in the test's log. Nothing in the environment takes longer than
// milliseconds, but for a kind that is not offered, which is waited for.
func Run(t *testing.T, g *flow.Graph, targets []string, journal flow.Journal, observe func(flow.Event)) (*flow.Report,
	error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	return g.Run(ctx, flow.Options{Journal: journal, Targets: targets, Observe: func(e flow.Event) {
		t.Log(e.Kind, e.Step, e.Message, e.Err)
		if observe != nil {
			observe(e)
		}
	}})
}

// Writes counts the requests for a change, to both clusters and to Hetzner.
func (w *Environment) Writes() int {
	return len(w.Management.Writes()) + len(w.Workload.Writes()) + len(w.Hetzner.Writes())
}

const (
	CAPI   = "cluster.x-k8s.io/v1beta1"
	CAPH   = "infrastructure.cluster.x-k8s.io/v1beta1"
	CACPPT = "controlplane.cluster.x-k8s.io/v1alpha3"
	CABPT  = "bootstrap.cluster.x-k8s.io/v1alpha3"
)

func (w *Environment) namespace() string { return cmp.Or(w.Namespace, config.DefaultNamespace) }

// ReactManagement plays CAPH, CABPT and CACPPT.
func (w *Environment) ReactManagement(o *unstructured.Unstructured) {
	if o.GetNamespace() != w.namespace() { // another cluster's
		return
	}
	owned := map[string]string{"caph-cluster-k8s": "owned"}
	switch o.GetKind() {
	case "HetznerCluster":
		w.Hetzner.SetNetworks(schema.Network{ID: 77, Labels: owned, IPRange: "10.10.0.0/16"})
		w.Hetzner.OwnLoadBalancer(capi.Text(o, "spec", "controlPlaneLoadBalancer", "name"), "caph-cluster-k8s")
		if capi.Text(o, "spec", "controlPlaneEndpoint", "host") == "" {
			w.Hetzner.SetLoadBalancers(hetznertest.LoadBalancer(9, "k8s-kube-apiserver-a1b2c", LoadBalancerIP, owned, 6443,
				50000))
			w.Management.Change(CAPH, "HetznerCluster", w.namespace(), "k8s",
				Map{"spec": Map{"controlPlaneEndpoint": Map{"host": LoadBalancerIP}}})
		}
	case "TalosControlPlane":
		if w.Management.Get(CAPI, "Machine", w.namespace(), "k8s-control-plane-0") != nil {
			return // made already
		}
		var servers []schema.Server
		for i := range 3 {
			name := fmt.Sprintf("k8s-control-plane-%d", i)
			private := fmt.Sprintf("10.10.64.%d", 2+i)
			servers = append(servers,
				schema.Server{ID: int64(100 + i), Name: name, Status: "running", Labels: owned,
					PublicNet:  schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: fmt.Sprint("127.0.1.", i)}},
					PrivateNet: []schema.ServerPrivateNet{{IP: private}}})
			labels := Map{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
			w.Management.Put(kubetest.Object(CAPH, "HCloudMachine", w.namespace(), name, Map{
				"metadata": Map{"labels": labels}, "spec": Map{"providerID": fmt.Sprintf("hcloud://%d", 100+i)},
				"status": Map{"instanceState": "running"},
			}))
			w.Management.Put(kubetest.Object(CAPI, "Machine", w.namespace(), name, Map{
				"metadata": Map{"labels": labels}, "spec": Map{"infrastructureRef": Map{"name": name}},
				"status": Map{"addresses": []any{Map{"type": "InternalIP", "address": private},
					Map{"type": "ExternalIP", "address": "127.0.1." + fmt.Sprint(i)}}},
			}))
			w.Workload.Put(kubetest.Object("v1", "Node", "", name, Map{
				"metadata": Map{"labels": Map{capi.ControlPlaneRole: ""}},
				"spec":     Map{"taints": []any{Map{"key": situation.UninitializedTaint, "effect": "NoSchedule"}}},
				"status": Map{"nodeInfo": Map{"kubeletVersion": config.Defaults().KubernetesVersion},
					"addresses": []any{Map{"type": "InternalIP", "address": private}}},
			}))
		}
		w.Hetzner.SetServers(servers...)
		w.Hetzner.TargetServers("caph-cluster-k8s")
		secret := func(name, key string, value []byte) {
			w.Management.Put(kubetest.Object("v1", "Secret", w.namespace(), name,
				Map{"metadata": Map{"labels": Map{capi.ClusterNameLabel: "k8s"}}, "data": Map{key: value}}))
		}
		secret("k8s-kubeconfig", "value", w.Workload.Kubeconfig())
		secret("k8s-talosconfig", "talosconfig", w.Talosconfig)
		w.Management.Change(CACPPT, "TalosControlPlane", w.namespace(), "k8s-control-plane",
			Map{"status": Map{"initialized": true}})
	}
}

// ReactWorkload plays the controllers of workloads, Cilium and the Hetzner CCM.
func (w *Environment) ReactWorkload(o *unstructured.Unstructured) {
	ready := Map{"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "desiredNumberScheduled": 3,
		"updatedNumberScheduled": 3, "numberReady": 3}
	if o.GetKind() != "DaemonSet" && o.GetKind() != "Deployment" {
		return
	}
	w.Workload.Change("apps/v1", o.GetKind(), o.GetNamespace(), o.GetName(), Map{"status": ready})
	for i := range 3 {
		name := fmt.Sprintf("k8s-control-plane-%d", i)
		switch o.GetName() {
		case "cilium":
			w.Workload.Change("v1", "Node", "", name,
				Map{"status": Map{"conditions": []any{Map{"type": "Ready", "status": "True"}}}})
		case "hcloud-cloud-controller-manager":
			w.Workload.Change("v1", "Node", "", name,
				Map{"spec": Map{"providerID": fmt.Sprintf("hcloud://%d", 100+i), "taints": nil}})
			w.Management.Change(CAPI, "Machine", w.namespace(), name, Map{"status": Map{"nodeRef": Map{"name": name}}})
		}
	}
}

// Provider gives out one management cluster.
type Provider struct {
	Kubeconfig  []byte
	There       bool
	ExistsError error // of Exists
	Ensured     int
}

func (p *Provider) Name() string { return "fake" }

// Ensure counts its calls and returns the kubeconfig.
func (p *Provider) Ensure(context.Context, string, flow.Say) ([]byte, error) {
	p.Ensured++
	return p.Kubeconfig, nil
}

func (p *Provider) Exists(context.Context, string) (bool, error) { return p.There, p.ExistsError }

func (p *Provider) Delete(context.Context, string) error { return nil }

// HubbleUI is the Deployment of Cilium's chart, beside the agents.
const HubbleUI = "hubble-ui"

// NextCilium is a version of Cilium's chart besides the default one.
const NextCilium = "1.18.13"

// agentsManifest is the DaemonSet of Cilium's chart, whose image has the chart's version.
const agentsManifest = `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  updateStrategy: {type: {{ dig "updateStrategy" "type" "RollingUpdate" .Values.AsMap }}}
  template:
    metadata: {labels: {k8s-app: cilium}, annotations: {{ dig "podAnnotations" (dict) .Values.AsMap | toJson }}}
    spec: {containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v{{ .Chart.Version }}"}]}
`

// OwnChart and its versions are a chart that an operator has as an add-on.
const (
	OwnChart     = "shop"
	OwnVersion   = "1.0.0"
	NextVersion  = "1.1.0"
	OwnNamespace = "shop-system"
)

// ServeCharts serves a small chart for each of the three releases and the shipped add-ons, at the default versions, and
// OwnChart.
func ServeCharts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	d := config.Defaults()
	type served struct {
		chart         bootstrap.Chart
		version, kind string
	}
	all := []served{{bootstrap.Cilium(), d.CiliumVersion, "DaemonSet"}, {bootstrap.Cilium(), NextCilium, "DaemonSet"},
		{bootstrap.HCloudCCM(), d.HCloudCCMVersion, "Deployment"},
		{bootstrap.TalosCCM(), d.TalosCCMVersion, "DaemonSet"}}
	for _, a := range config.ShippedAddons() {
		all = append(all, served{bootstrap.Chart{Name: a.Chart}, a.Version, "Deployment"})
	}
	for _, version := range []string{OwnVersion, NextVersion} {
		all = append(all, served{bootstrap.Chart{Name: OwnChart}, version, "Deployment"})
	}
	for _, c := range all {
		const workload = "---\napiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\nspec: {selector: " +
			"{matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}\n"
		manifest := fmt.Sprintf(workload, c.kind, "{{ .Release.Name }}")
		switch c.chart.Name {
		case bootstrap.Cilium().Name:
			manifest = agentsManifest + fmt.Sprintf(workload, "Deployment", HubbleUI)
		case bootstrap.TalosCCM().Name:
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

// NewTalosconfig makes credentials of a cluster of their own, pointing at one public address as CABPT's do at first.
func NewTalosconfig(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotAfter: time.Now().Add(365 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c := talosconfig.NewConfig("k8s", []string{"127.0.1.0"}, crt, &xcrypto.PEMEncodedCertificateAndKey{Crt: crt,
		Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})})
	data, err := c.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Buffer is a buffer for several writers.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Configure applies KEY=VALUE as the command does; VERSIONS=SET gives all versions of the set.
func Configure(t *testing.T, c *config.Config, kv string) {
	t.Helper()
	key, value, _ := strings.Cut(kv, "=")
	if set, known := config.Shipped().Set(value); known && key == "VERSIONS" {
		if err := set.Apply(c, func(config.Variable) bool { return false }); err != nil {
			t.Fatal(err)
		}
		return
	}
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

// Messages collects what a wait says.
type Messages struct{ lines []string }

// Add is a flow.Say.
func (l *Messages) Add(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}
