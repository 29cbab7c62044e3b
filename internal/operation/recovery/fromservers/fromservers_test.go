package fromservers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	machinery "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

const address = "127.0.0.7"

// made is a cluster that a configuration has made, and what is made of its servers.
type made struct {
	*testing.T
	survey
	cfg   config.Config
	notes []string
}

func (m *made) note(format string, args ...any) { m.notes = append(m.notes, fmt.Sprintf(format, args...)) }

// newMade is a cluster with three servers, as the configuration makes them, which have patches besides.
func newMade(t *testing.T, cfg config.Config, patches ...string) *made {
	t.Helper()
	bundle, err := secrets.NewBundle(secrets.NewClock(), machinery.TalosVersionCurrent)
	if err != nil {
		t.Fatal(err)
	}
	m := &made{T: t, cfg: cfg}
	m.bundle, m.talosconfig, m.architecture = bundle, []byte("credentials"), "amd64"
	m.balancer = &hetzner.Survivor{ID: 9, Name: "lb", IPv4: address, Labelled: true}
	m.endpoint = &hetzner.Endpoint{IPv4: netip.MustParseAddr(address), Name: "k8s-control-plane", LoadBalancer: 9}
	m.sources = func(cfg config.Config) (render.Sources, error) { return render.Read(render.VariablesOf(cfg), "") }
	sources, err := m.sources(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := render.ManifestVariables(sources, cfg.Image("amd64"), "eu-central", render.Endpoint{IP: address,
		LoadBalancer: m.endpoint.Name})
	r, err := render.Manifests(cfg, sources, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Now {
		if o.GroupVersionKind() == capi.TalosControlPlaneKind {
			live := m.configOf(cfg, o, patches...)
			for i := range 3 {
				m.survey.servers = append(m.survey.servers, m.server(int64(100+i), fmt.Sprintf("k8s-control-plane-mine-%d", i), live))
			}
		}
	}
	for _, p := range cfg.Workers {
		objects, err := render.Workers(cfg, sources, v, map[string]render.PoolPlacement{p.Name: {}})
		if err != nil {
			t.Fatal(err)
		}
		live := m.configOf(cfg, poolOf(objects).config, patches...)
		for i := range p.Replicas {
			worker := m.server(int64(200+i), fmt.Sprintf("k8s-%s-abcde-%d", p.Name, i), live)
			worker.ControlPlane, worker.Worker = false, true
			m.workers = append(m.workers, worker)
		}
	}
	return m
}

// configOf is what the bootstrap provider makes of an object, with patches besides.
func (m *made) configOf(cfg config.Config, o *unstructured.Unstructured, patches ...string) machinery.Provider {
	m.Helper()
	live, err := checks.MachineConfigOf(cfg, o, checks.Identity{Secrets: m.bundle, Endpoint: "https://" + address + ":6443"})
	if err != nil {
		m.Fatal(err)
	}
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		m.Fatal(err)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(live), loaded)
	if err == nil {
		live, err = out.Config()
	}
	if err != nil {
		m.Fatal(err)
	}
	return live
}

func (m *made) server(id int64, name string, live machinery.Provider) server {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{machineAnnotation: "machine-of-" + name}}}
	node.Status.NodeInfo.KubeletVersion = m.cfg.KubernetesVersion
	return server{Server: hetzner.Server{ID: id, Name: name, Type: "cx33", Location: "nbg1", ControlPlane: true}, node: node,
		talos: m.cfg.TalosVersion, config: live}
}

// backup is the backup that is made, less the snapshot of etcd.
func (m *made) backup() (config.Config, backup.Cluster) {
	m.Helper()
	cfg, err := m.configuration(m.cfg, m.note)
	if err != nil {
		m.Fatal(err)
	}
	objects, err := m.objects(cfg, m.note)
	if err != nil {
		m.Fatal(err)
	}
	c := &backup.Contents{Objects: objects.Objects, Secrets: objects.Secrets}
	c.Header.Cluster, c.Header.UID, c.Snapshot.SHA256 = cfg.ClusterName, "uid", "5a5a"
	source := backup.Cluster{Contents: c}
	if _, err := source.Configure(cfg); err != nil {
		m.Error(err)
	}
	return cfg, source
}

// TestObjects holds that what is made of three servers is what their cluster had: a Machine for each that no controller
// would replace, and every key.
func TestObjects(t *testing.T) {
	m := newMade(t, config.Defaults())
	_, source := m.backup()
	if len(m.notes) > 0 {
		t.Errorf("servers as the manifests have them: %q", m.notes)
	}
	machines := source.Machines()
	if len(machines) != 3 || source.Replicas() != 3 || !source.KeepsAddress() {
		t.Fatalf("machines %v of %d, keeps its address: %v", machines, source.Replicas(), source.KeepsAddress())
	}
	template := capi.Text(source.ControlPlane(), "spec", "infrastructureTemplate", "name")
	if template != "k8s-control-plane-mine" || source.Object("HCloudMachineTemplate", template) == nil {
		t.Errorf("the servers were made from another template than %s", template)
	}
	if ip, host := source.Endpoint(); ip != address || host != address {
		t.Errorf("it is at %s, %s", ip, host)
	}
	for i, one := range machines {
		want := m.survey.servers[i]
		if one.ServerID != want.ID || one.Server != want.Name || one.Name != "machine-of-"+want.Name || !one.ControlPlane ||
			one.Outdated != "" {
			t.Errorf("%+v", one)
		}
		var kinds []string
		for _, o := range source.OwnedBy(source.Object("Machine", one.Name)) {
			kinds = append(kinds, o.GetKind())
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []string{"HCloudMachine", "Machine", "Secret", "TalosConfig"}) {
			t.Errorf("%s has %v", one.Name, kinds)
		}
		configuration := source.Object("TalosConfig", one.Name)
		plane, _, _ := unstructured.NestedMap(source.ControlPlane().Object, controlPlaneSpec...)
		if fmt.Sprint(configuration.Object["spec"]) != fmt.Sprint(plane) {
			t.Errorf("%s is not configured as its control plane says: it would be replaced", one.Name)
		}
	}
	data, err := backup.SecretData(source.Secret("k8s-talos"), "bundle")
	is := &secrets.Bundle{}
	if err == nil {
		err = yaml.Unmarshal(data, is)
	}
	if err != nil || string(is.Certs.OS.Key) != string(m.bundle.Certs.OS.Key) ||
		is.Secrets.SecretboxEncryptionSecret != m.bundle.Secrets.SecretboxEncryptionSecret || is.TrustdInfo.Token == "" {
		t.Errorf("the keys are not the cluster's: %v", err)
	}
	if key, err := backup.SecretData(source.Secret("k8s-ca"), "tls.key"); err != nil ||
		string(key) != string(m.bundle.Certs.K8s.Key) {
		t.Errorf("the authority is not the cluster's: %v", err)
	}
}

// TestPatches holds that new servers are configured as those that exist, also where the manifests do not say so; and
// that a difference which no patch brings about is said.
func TestPatches(t *testing.T) {
	const mirror = "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: ghcr.io\nendpoints:\n  - url: https://127.0.0.9\n"
	for name, c := range map[string]struct {
		has     string
		patched string // field that becomes a patch
		left    string // field that does not
	}{
		"a field":      {has: "machine:\n  sysctls:\n    vm.swappiness: \"7\"\n", patched: "machine.sysctls.vm.swappiness"},
		"a document":   {has: mirror, patched: "document RegistryMirrorConfig ghcr.io"},
		"a list grows": {has: "machine:\n  certSANs: [127.0.0.9]\n", patched: "machine.certSANs"},
		"a field that Talos refuses": {has: "machine:\n  network:\n    interfaces:\n      - interface: eth1\n        addresses: [nowhere]\n",
			left: "machine.network.interfaces"},
		"a field is not there": {has: "machine:\n  features:\n    kubernetesTalosAPIAccess:\n      $patch: delete\n",
			patched: "machine.features.kubernetesTalosAPIAccess"},
		"a list is empty": {has: "machine:\n  certSANs:\n    $patch: delete\n", patched: "machine.certSANs"},
		"a list is another": {has: "machine:\n  network:\n    interfaces:\n      - interface: eth1\n        mtu: 1400\n",
			patched: "machine.network.interfaces"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, config.Defaults(), c.has)
			_, source := m.backup()
			said := strings.Join(m.notes, "\n")
			if (c.patched != "") != strings.Contains(said, "becomes a patch") || !strings.Contains(said, c.patched) {
				t.Errorf("patched: %s", said)
			}
			if (c.left != "") != strings.Contains(said, "later differs") || !strings.Contains(said, c.left) {
				t.Errorf("left: %s", said)
			}
			for _, one := range source.Machines() {
				if one.Outdated != "" {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}

// TestServersThatDiffer holds that one which is configured other than the newest is named, and one that is silent.
func TestServersThatDiffer(t *testing.T) {
	m := newMade(t, config.Defaults())
	other := newMade(t, config.Defaults(), "machine:\n  sysctls:\n    a.b: \"1\"\n")
	m.survey.servers[0].config = other.survey.servers[0].config
	m.survey.servers[1].config, m.survey.servers[1].err = nil, errors.New("it is off")
	_, source := m.backup()
	said := strings.Join(m.notes, "\n")
	for _, want := range []string{"-0 differs from k8s-control-plane-mine-2 in", "machine.sysctls.a.b", "it is off"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	if strings.Contains(said, base64.StdEncoding.EncodeToString(m.bundle.Certs.OS.Key)) {
		t.Error("a key is in what is said")
	}
	if n := len(source.Machines()); n != 3 {
		t.Errorf("%d Machines", n)
	}
}

// TestConfiguration holds that what the cluster has counts, and that it is said where it is another than what is
// configured.
func TestConfiguration(t *testing.T) {
	m := newMade(t, config.Defaults())
	m.survey.servers = m.survey.servers[:2]
	for i := range m.survey.servers {
		m.survey.servers[i].Type, m.survey.servers[i].Image = "cx43", "mine"
	}
	m.survey.servers[0].node.Status.NodeInfo.KubeletVersion = "v1.35.3"
	m.endpoint = nil
	m.inventory = []hetzner.Resource{{Kind: hetzner.KindNetwork, ID: 1, Addresses: []string{"127.8.0.0/16"}},
		{Kind: hetzner.KindLoadBalancer, ID: 9, Type: "lb21", Location: "fsn1"},
		{Kind: hetzner.KindLoadBalancer, ID: 10, Type: "lb31", Location: "hel1"}}
	cfg, source := m.backup()
	if cfg.ControlPlaneReplicas != 2 || cfg.ServerType != "cx43" || cfg.KubernetesVersion != "v1.35.3" ||
		cfg.NetworkCIDR != "127.8.0.0/16" || cfg.LoadBalancerType != "lb21" || cfg.Location != "fsn1" ||
		cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer || source.KeepsAddress() {
		t.Errorf("%+v", cfg)
	}
	if len(m.notes) < 7 {
		t.Errorf("it does not say all of it: %q", m.notes)
	}
	template := source.Object("HCloudMachineTemplate", capi.Text(source.ControlPlane(), "spec", "infrastructureTemplate", "name"))
	if capi.Text(template, "spec", "template", "spec", "imageName") != "mine" {
		t.Errorf("its image is %v", template.Object["spec"])
	}
	infrastructure := source.Object("HetznerCluster", "k8s")
	if regions, _, _ := unstructured.NestedStringSlice(infrastructure.Object, "spec", "controlPlaneRegions"); !slices.Equal(regions, []string{"nbg1"}) {
		t.Errorf("the servers are in %v", regions)
	}
}

// TestPools holds that a worker pool comes back with its MachineSet and its Machines, and that workers of no configured
// pool are named.
func TestPools(t *testing.T) {
	cfg := config.Defaults()
	cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 2}, {Name: "other", Replicas: 1}}
	m := newMade(t, cfg, "machine:\n  sysctls:\n    a.b: \"1\"\n")
	m.cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 5}, {Name: "new", Replicas: 1}}
	_, source := m.backup()
	said := strings.Join(m.notes, "\n")
	for _, want := range []string{"MachineDeployment k8s-other get no Machine", "has 2 servers", "TalosConfigTemplate"} {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q: %s", want, said)
		}
	}
	deployment, set := source.Object("MachineDeployment", "k8s-general"), source.Object("MachineSet", "k8s-general-abcde")
	if deployment == nil || set == nil || source.Object("MachineDeployment", "k8s-new") != nil {
		t.Fatalf("deployment %v, set %v", deployment, set)
	}
	if capi.Number(deployment, "spec", "replicas") != 2 || capi.Number(set, "spec", "replicas") != 2 {
		t.Error("it would create or delete servers")
	}
	machine := capi.Text(set, "spec", "template", "spec", "bootstrap", "configRef", "name")
	if template := source.Object("TalosConfigTemplate", machine); template == nil ||
		!strings.Contains(fmt.Sprint(template.Object["spec"]), "a.b") {
		t.Errorf("TalosConfigTemplate %s: %v", machine, template)
	}
	workers := 0
	for _, one := range source.Machines() {
		if !one.ControlPlane {
			workers++
			labels := source.Object("Machine", one.Name).GetLabels()
			if labels[setLabel] != set.GetName() || labels[templateHashLabel] != "abcde" ||
				labels[capi.DeploymentLabel] != "k8s-general" {
				t.Errorf("%s: %v", one.Name, labels)
			}
		}
	}
	if workers != 2 {
		t.Errorf("%d workers have a Machine", workers)
	}
}

// servedBy answers for the servers' Talos; nil: nothing does.
type servedBy struct {
	clustertest.HealthyTalos
	live machinery.Provider
}

func (s servedBy) MachineConfig(context.Context, talos.Route) (machinery.Provider, error) {
	if s.live == nil {
		return nil, errors.New("no route to it")
	}
	return s.live, nil
}

// TestRead holds what is refused, of which none writes anything, and that the rest is read.
func TestRead(t *testing.T) {
	node := func(name string, id int64, namespace string) *unstructured.Unstructured {
		return kubetest.Object("v1", "Node", "", name, clustertest.Map{
			"metadata": clustertest.Map{"annotations": clustertest.Map{namespaceAnnotation: namespace}},
			"spec":        clustertest.Map{"providerID": hetzner.Server{ID: id}.ProviderID()},
			"status":      clustertest.Map{"nodeInfo": clustertest.Map{"kubeletVersion": config.Defaults().KubernetesVersion}}})
	}
	const name = "k8s-control-plane-380b1-abcde"
	for what, c := range map[string]struct {
		spoil func(*clustertest.Environment, platform.Files, *servedBy)
		says  string // empty: it is read
		fails bool   // with another exit code than that of a refusal
		self  bool
	}{
		"a cluster without objects": {},
		"one that managed itself": {self: true, spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
			w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "cacppt-system", "cacppt", clustertest.Map{
				"metadata": clustertest.Map{"labels": clustertest.Map{capi.ProviderLabel: capi.ControlPlaneProviderName}}}))
		}},
		"no kubeconfig": {says: "kubeconfig: put that of the cluster there",
			spoil: func(_ *clustertest.Environment, f platform.Files, _ *servedBy) { _ = f.Remove(platform.Kubeconfig) }},
		"no talosconfig": {says: "talosconfig: put that of the cluster there",
			spoil: func(_ *clustertest.Environment, f platform.Files, _ *servedBy) { _ = f.Remove(platform.Talosconfig) }},
		"it is managed": {says: "its objects are not lost",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
				w.Provider.There = true
				w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
				w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
			}},
		"its objects were in another namespace": {says: "set NAMESPACE=prod",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) { w.Workload.Put(node(name, 100, "prod")) }},
		"the kubeconfig is another cluster's": {says: "that is another cluster's",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) { w.Workload.Put(node(name, 7, "default")) }},
		"no server": {says: "no control plane server of cluster k8s exists", fails: true,
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) { w.Hetzner.SetServers() }},
		"Talos does not answer": {says: "no route to it", fails: true,
			spoil: func(_ *clustertest.Environment, _ platform.Files, s *servedBy) { s.live = nil }},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMade(t, config.Defaults())
			w, s := clustertest.New(t), &servedBy{live: m.survey.servers[0].config}
			tools := w.Tools()
			tools.Talos = func([]byte) (talos.Client, error) { return *s, nil }
			w.Provider.There = false
			w.Hetzner.SetServers(schema.Server{ID: 100, Name: name, Status: "running", Location: schema.Location{Name: "nbg1"},
				ServerType: schema.ServerType{Name: "cx33"},
				PublicNet:  schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "127.0.1.1"}},
				Labels: map[string]string{"caph-cluster-k8s": "owned", "machine.caph-name": name,
					"machine_type": "control_plane"}})
			w.Workload.Put(node(name, 100, "default"))
			for file, data := range map[string][]byte{platform.Kubeconfig: w.Workload.Kubeconfig(),
				platform.Talosconfig: w.Talosconfig} {
				if err := tools.Files.Write(file, data); err != nil {
					t.Fatal(err)
				}
			}
			if c.spoil != nil {
				c.spoil(w, tools.Files, s)
			}
			source, err := Collector{Cfg: w.Config(), Tools: tools, Note: m.note}.Read(t.Context(), func(string, ...any) {}, "v1")
			_, refused := errors.AsType[*usage.Error](err)
			switch {
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || refused == c.fails):
				t.Errorf("%v; a refusal: %v", err, refused)
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says == "":
				h := source.Contents.Header
				if !h.FromServers || h.SelfManaged != c.self || h.UID != "workload" || len(source.Contents.Secrets) != 4 {
					t.Errorf("%+v, %d Secrets", h, len(source.Contents.Secrets))
				}
			}
		})
	}
}
