package fromservers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
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
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
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

func (m *made) note(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// says requires that each of some texts was noted, and the others were not.
func (m *made) says(want, not []string) {
	m.Helper()
	said := strings.Join(m.notes, "\n")
	for _, text := range want {
		if !strings.Contains(said, text) {
			m.Errorf("it does not say %q:\n%s", text, said)
		}
	}
	for _, text := range not {
		if strings.Contains(said, text) {
			m.Errorf("it says %q:\n%s", text, said)
		}
	}
}

// keysOf are the keys of all the tests' clusters: one of them takes seconds to make.
var keysOf = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), machinery.TalosVersionCurrent)
})

// newMade is a cluster with three servers, as the configuration makes them, which have patches besides.
func newMade(t *testing.T, cfg config.Config, patches ...string) *made {
	t.Helper()
	keys, err := keysOf()
	if err != nil {
		t.Fatal(err)
	}
	bundle, of := *keys, *keys.Secrets
	bundle.Secrets = &of
	m := &made{T: t, cfg: cfg}
	m.bundle, m.talosconfig = &bundle, []byte("credentials")
	m.architectures = map[string]string{"cx33": "amd64", "cax21": "arm64"}
	m.balancer = &hetzner.LoadBalancer{ID: 9, Name: "lb", Addresses: []netip.Addr{netip.MustParseAddr(address)},
		Type: cfg.LoadBalancerType, Location: "nbg1", Services: []hetzner.BalancerService{{Protocol: "tcp",
			ListenPort:      6443,
			DestinationPort: 6443}, {Protocol: "tcp", ListenPort: 50000, DestinationPort: 50000}}}
	m.primaryIP = &hetzner.Endpoint{IPv4: netip.MustParseAddr(address), Name: "k8s-control-plane", LoadBalancer: 9}
	m.sources = func(cfg config.Config) (render.Sources, error) { return render.Read(render.VariablesOf(cfg), "") }
	sources, err := m.sources(cfg)
	if err != nil {
		t.Fatal(err)
	}
	v := render.ManifestVariables(sources, cfg.Image("amd64"), "eu-central", render.Endpoint{IP: address,
		LoadBalancer: m.primaryIP.Name})
	r, err := render.Manifests(cfg, sources, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Now {
		if o.GroupVersionKind() == capi.TalosControlPlaneKind {
			live := m.configOf(cfg, o, patches...)
			for i := range 3 {
				name := fmt.Sprintf("k8s-control-plane-mine-%d", i)
				m.survey.servers = append(m.survey.servers, m.server(int64(100+i), name, live))
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
	live, err := checks.MachineConfigOf(cfg, o, checks.Identity{Secrets: m.bundle,
		Endpoint: "https://" + address + ":6443"})
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
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{capi.NodeMachineAnnotation: "machine-of-" + name}}}
	node.Status.NodeInfo.KubeletVersion = m.cfg.KubernetesVersion
	is := hetzner.Server{ID: id, Name: name, Type: "cx33", Location: "nbg1", ControlPlane: true}
	return server{Server: is, node: node, talos: m.cfg.TalosVersion, config: live}
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

// upToDate requires what CACPPT compares before it replaces a server.
func (m *made) upToDate(source backup.Cluster) {
	m.Helper()
	plane, _, _ := unstructured.NestedMap(source.ControlPlane().Object, controlPlaneSpec...)
	for _, one := range source.Machines() {
		is := source.Object("TalosConfig", one.Name).Object["spec"]
		if one.ControlPlane && (one.Outdated != "" || !reflect.DeepEqual(is, any(plane))) {
			m.Errorf("%s would be replaced: %s; its TalosConfig is %v, the control plane's %v", one.Name, one.Outdated,
				is, plane)
		}
	}
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
		if one.ServerID != want.ID || one.Server != want.Name || one.Name != "machine-of-"+want.Name ||
			!one.ControlPlane ||
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
	}
	m.upToDate(source)
	data, err := backup.SecretData(source.Secret("k8s-talos"), "bundle")
	is := &secrets.Bundle{}
	if err == nil {
		err = yaml.Unmarshal(data, is)
	}
	if err != nil || string(is.Certs.OS.Key) != string(m.bundle.Certs.OS.Key) ||
		is.Secrets.SecretboxEncryptionSecret != m.bundle.Secrets.SecretboxEncryptionSecret ||
		is.TrustdInfo.Token == "" {
		t.Errorf("the keys are not the cluster's: %v", err)
	}
	data, err = backup.SecretData(source.Secret("k8s-kubeconfig"), "value")
	if err != nil {
		t.Fatal(err)
	}
	if is, err := kubeconfig.Accept(data); err != nil || is.Server != address+":6443" {
		t.Errorf("the controllers reach the API at %v: %v", is, err)
	}
	if key, err := backup.SecretData(source.Secret("k8s-ca"), "tls.key"); err != nil ||
		string(key) != string(m.bundle.Certs.K8s.Key) {
		t.Errorf("the authority is not the cluster's: %v", err)
	}
}

// TestPatches holds that new servers are configured as those that exist, also where the manifests do not say so; and
// that what no patch may or can bring about is said.
func TestPatches(t *testing.T) {
	const mirror = "apiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: ghcr.io\nendpoints:\n  - url: " +
		"https://127.0.0.9\n"
	const refused = "machine:\n  network:\n    interfaces:\n      - interface: eth1\n        addresses: [nowhere]\n"
	for name, c := range map[string]struct {
		has     []string
		patched []string // fields that become a patch
		left    []string // fields that do not
	}{
		"a field": {has: []string{"machine:\n  sysctls:\n    vm.swappiness: \"7\"\n"},
			patched: []string{"machine.sysctls.vm.swappiness"}},
		"a document":   {has: []string{mirror}, patched: []string{"document RegistryMirrorConfig ghcr.io"}},
		"a list grows": {has: []string{"machine:\n  certSANs: [127.0.0.9]\n"}, patched: []string{"machine.certSANs"}},
		"a list where there is none": {has: []string{"machine:\n  kernel:\n    modules:\n      - name: br_netfilter\n",
			"machine:\n  time:\n    servers: [127.0.0.9]\n"}, patched: []string{"machine.kernel", "machine.time"}},
		"a field is not there": {has: []string{"machine:\n  features:\n    kubernetesTalosAPIAccess:\n      $patch: " +
			"delete\n"},
			patched: []string{"machine.features.kubernetesTalosAPIAccess"}},
		"a list is empty": {has: []string{"machine:\n  certSANs:\n    $patch: delete\n"},
			patched: []string{"machine.certSANs"}},
		"a list is another": {has: []string{"machine:\n  network:\n    interfaces:\n      - interface: eth1\n       " +
			" mtu: 1400\n"},
			patched: []string{"machine.network.interfaces"}},
		"a field that Talos refuses, beside another": {has: []string{refused, "machine:\n  sysctls:\n    a.b: \"1\"\n"},
			patched: []string{"machine.sysctls.a.b"}, left: []string{"machine.network.interfaces"}},
		"fields of one server": {has: []string{"machine:\n  network:\n    hostname: me\n",
			"cluster:\n  apiServer:\n    image: registry.k8s.io/kube-apiserver:v1.0.0\n", "machine:\n  token: " +
				"other.token\n"},
			left: []string{"machine.network.hostname", "cluster.apiServer.image", "machine.token"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMade(t, config.Defaults(), c.has...)
			_, source := m.backup()
			patched, left := "", ""
			for _, n := range m.notes {
				if strings.Contains(n, "becomes a patch") {
					patched = n
				}
				if strings.Contains(n, "created later differs") {
					left = n
				}
			}
			for _, want := range c.patched {
				if !strings.Contains(patched, want) || strings.Contains(left, want) {
					t.Errorf("%s becomes no patch: %q", want, m.notes)
				}
			}
			for _, want := range c.left {
				if !strings.Contains(left, want) || strings.Contains(patched, want) {
					t.Errorf("%s is not left: %q", want, m.notes)
				}
			}
			if len(m.notes) != min(1, len(c.patched))+min(1, len(c.left)) {
				t.Errorf("it says %q", m.notes)
			}
			m.upToDate(source)
		})
	}
}

// TestServersThatDiffer holds that one which is configured other than the newest is named, and that what only some
// have becomes no patch; and that one which is silent is named.
func TestServersThatDiffer(t *testing.T) {
	m := newMade(t, config.Defaults(), "machine:\n  sysctls:\n    a.b: \"2\"\n    c.d: \"1\"\n")
	other := m.configOf(m.cfg, newestTCP(m), "machine:\n  sysctls:\n    a.b: \"1\"\n    c.d: \"1\"\n")
	m.survey.servers[0].config = other
	m.survey.servers[1].config, m.survey.servers[1].err = nil, errors.New("it is off")
	_, source := m.backup()
	m.says([]string{"-0 differs from k8s-control-plane-mine-2 in machine.sysctls.a.b", "it is off",
		"becomes a patch: machine.sysctls.c.d", "k8s-control-plane-mine-2, in machine.sysctls.a.b"},
		[]string{base64.StdEncoding.EncodeToString(m.bundle.Certs.OS.Key), "patch: machine.sysctls.a.b"})
	if n := len(source.Machines()); n != 3 {
		t.Errorf("%d Machines", n)
	}
}

// newestTCP is the TalosControlPlane of the manifests.
func newestTCP(m *made) *unstructured.Unstructured {
	m.Helper()
	_, source := (&made{T: m.T, survey: m.survey, cfg: m.cfg}).backup()
	tcp := source.ControlPlane()
	patches, _, _ := unstructured.NestedStringSlice(tcp.Object, append(slices.Clone(controlPlaneSpec),
		"strategicPatches")...)
	patches = slices.DeleteFunc(patches, func(p string) bool { return strings.Contains(p, "a.b") })
	if err := unstructured.SetNestedStringSlice(tcp.Object, patches,
		append(slices.Clone(controlPlaneSpec), "strategicPatches")...); err != nil {
		m.Fatal(err)
	}
	return tcp
}

// TestInTheMiddleOfARollout holds that servers of two versions are no reason to keep the versions in patches, and that
// the rollout which ends so is named.
func TestInTheMiddleOfARollout(t *testing.T) {
	old := config.Defaults()
	old.KubernetesVersion, old.TalosVersion = "v1.35.3", "v1.13.8"
	m, before := newMade(t, config.Defaults()), newMade(t, old)
	m.survey.servers[0].config = before.configOf(old, newestTCP(before))
	m.survey.servers[0].node.Status.NodeInfo.KubeletVersion, m.survey.servers[0].talos = old.KubernetesVersion,
		old.TalosVersion
	cfg, source := m.backup()
	if cfg.KubernetesVersion != old.KubernetesVersion || cfg.TalosVersion != config.Defaults().TalosVersion {
		t.Errorf("it is of Kubernetes %s, Talos %s", cfg.KubernetesVersion, cfg.TalosVersion)
	}
	m.says([]string{"KUBERNETES_VERSION", "a rollout that was under way is not continued"},
		[]string{"becomes a patch", "created later differs"})
	m.upToDate(source)
}

// TestConfiguration holds that what the cluster has counts, and that it is said where it is another than what is
// configured.
func TestConfiguration(t *testing.T) {
	m := newMade(t, config.Defaults())
	m.survey.servers = m.survey.servers[:2]
	for i := range m.survey.servers {
		m.survey.servers[i].Type, m.survey.servers[i].Image = "cax21", "mine"
	}
	m.primaryIP, m.foreign = nil, errors.New("a Primary IP of another owner")
	m.network.whole, m.network.servers = "127.8.0.0/16", "127.8.1.0/24"
	m.balancer.Type, m.balancer.Location = "lb21", "fsn1"
	m.balancer.Services = append(m.balancer.Services, hetzner.BalancerService{Protocol: "tcp", ListenPort: 443,
		DestinationPort: 30443})
	cfg, source := m.backup()
	if cfg.ControlPlaneReplicas != 2 || cfg.ServerType != "cax21" || cfg.NetworkCIDR != "127.8.0.0/16" ||
		cfg.ControlPlaneCIDR != "127.8.1.0/24" || cfg.LoadBalancerType != "lb21" || cfg.Location != "fsn1" ||
		cfg.ControlPlaneEndpoint != config.EndpointLoadBalancer || source.KeepsAddress() {
		t.Errorf("%+v", cfg)
	}
	m.says([]string{"has 2 servers", "SERVER_TYPE", "NETWORK_CIDR", "CONTROL_PLANE_CIDR", "LOAD_BALANCER_TYPE",
		"LOCATION",
		"CONTROL_PLANE_ENDPOINT", "a Primary IP of another owner", "listens on port 443"}, nil)
	template := source.Object("HCloudMachineTemplate",
		capi.Text(source.ControlPlane(), "spec", "infrastructureTemplate", "name"))
	if capi.Text(template, "spec", "template", "spec", "imageName") != "mine" {
		t.Errorf("its image is %v", template.Object["spec"])
	}
	infrastructure := source.Object("HetznerCluster", "k8s")
	regions, _, _ := unstructured.NestedStringSlice(infrastructure.Object, "spec", "controlPlaneRegions")
	if !slices.Equal(regions, []string{"nbg1"}) {
		t.Errorf("the servers are in %v", regions)
	}
	services, _, _ := unstructured.NestedSlice(infrastructure.Object, "spec", "controlPlaneLoadBalancer",
		"extraServices")
	if text := fmt.Sprint(services); len(services) != 2 || !strings.Contains(text, "30443") {
		t.Errorf("CAPH would delete services: it knows %s", text)
	}
}

// TestAddress holds which address the cluster keeps where its load balancer is not what it was.
func TestAddress(t *testing.T) {
	m := newMade(t, config.Defaults())
	m.balancer = nil
	_, source := m.backup()
	if ip, _ := source.Endpoint(); ip != address || !source.KeepsAddress() {
		t.Errorf("without a load balancer, with a Primary IP: it is at %q", ip)
	}
	m.primaryIP = nil
	if _, source = m.backup(); source.KeepsAddress() {
		t.Error("without a Primary IP it keeps one")
	}
	if ip, _ := source.Endpoint(); ip != address {
		t.Errorf("with nothing at Hetzner that has it: it is at %q", ip)
	}
}

// TestImage holds that a server whose Talos was upgraded in place does not bring an older Talos to new servers.
func TestImage(t *testing.T) {
	for has, want := range map[string]string{"": "named", "mine": "mine", "talos-amd64-v1.13.9": "talos-amd64-v1.13.9",
		"talos-amd64-v1.13.1": "named"} {
		if is := (server{Server: hetzner.Server{Image: has}, talos: "v1.13.9"}).image("named"); is != want {
			t.Errorf("of one that was made from %q: %s", has, is)
		}
	}
}

// TestRefusesServers holds that no objects are made of servers that these would harm.
func TestRefusesServers(t *testing.T) {
	m := newMade(t, config.Defaults())
	if err := m.refuseServers(m.cfg); err != nil {
		t.Error(err)
	}
	m.survey.servers[0].ControlPlane = false
	if err := m.refuseServers(m.cfg); err == nil || !strings.Contains(err.Error(), "machine_type=control_plane") {
		t.Errorf("of another role: %v", err)
	}
	m.survey.servers[0].ControlPlane, m.bundle.Secrets.SecretboxEncryptionSecret = true, ""
	if err := m.refuseServers(m.cfg); err == nil || !strings.Contains(err.Error(), "aescbc") {
		t.Errorf("with the key of an older Talos: %v", err)
	}
	other := m.cfg
	other.ClusterName = "other"
	if err := m.refuseServers(other); err == nil || !strings.Contains(err.Error(), "not of other") {
		t.Errorf("of another cluster: %v", err)
	}
}

// TestPools holds that a worker pool comes back with its MachineSet and its Machines, and that workers of no configured
// pool are named.
func TestPools(t *testing.T) {
	cfg := config.Defaults()
	cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 2}, {Name: "other", Replicas: 1}}
	m := newMade(t, cfg, "machine:\n  sysctls:\n    a.b: \"1\"\n")
	m.cfg.Workers = config.WorkerPools{{Name: "general", Replicas: 5, ServerType: "cx23", Location: "fsn1"},
		{Name: "new", Replicas: 1}}
	more := m.workers[0]
	more.Name, more.node = "k8s-general-2-abcde-0", nil
	m.workers = append(m.workers, more)
	_, source := m.backup()
	m.says([]string{"MachineDeployment k8s-other get no Machine", "Configure a pool other", "has 2 servers",
		"the server type of worker pool general", "the location of worker pool general",
		"servers of worker pool general have what the manifests do not say",
		"They are of pool general, which has more servers than are configured"}, []string{"Configure a pool general-2"})
	deployment, set := source.Object("MachineDeployment", "k8s-general"), source.Object("MachineSet",
		"k8s-general-abcde")
	if deployment == nil || set == nil || source.Object("MachineDeployment", "k8s-new") != nil {
		t.Fatalf("deployment %v, set %v", deployment, set)
	}
	if set.GetLabels()[templateHashLabel] != "abcde" {
		t.Errorf("its MachineDeployment would refuse it: %v", set.GetLabels())
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
	const name = "k8s-control-plane-380b1-abcde"
	runs := config.Defaults().KubernetesVersion
	node := func(name string, id int64, namespace string) *unstructured.Unstructured {
		return kubetest.Object("v1", "Node", "", name, clustertest.Map{
			"metadata": clustertest.Map{"annotations": clustertest.Map{capi.NodeNamespaceAnnotation: namespace}},
			"spec":     clustertest.Map{"providerID": hetzner.Server{ID: id}.ProviderID()},
			"status":   clustertest.Map{"nodeInfo": clustertest.Map{"kubeletVersion": runs}}})
	}
	for what, c := range map[string]struct {
		spoil func(*clustertest.Environment, platform.Files, *servedBy)
		says  string // empty: it is read
		fails bool   // with another exit code than that of a refusal
		self  bool
	}{
		"a cluster without objects": {},
		"one that managed itself": {self: true, spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
			w.Workload.Put(kubetest.Object("apps/v1", "Deployment", "cacppt-system", "cacppt", clustertest.Map{
				"metadata": clustertest.Map{"labels": clustertest.Map{
					capi.ProviderLabel: capi.ControlPlaneProviderName}}}))
		}},
		"no kubeconfig": {says: "kubeconfig: put that of the cluster there",
			spoil: func(_ *clustertest.Environment, f platform.Files,
				_ *servedBy) {
				_ = f.Remove(platform.Kubeconfig)
			}},
		"no talosconfig": {says: "talosconfig: put that of the cluster there",
			spoil: func(_ *clustertest.Environment, f platform.Files,
				_ *servedBy) {
				_ = f.Remove(platform.Talosconfig)
			}},
		"it is managed": {says: "its objects are not lost",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
				w.Provider.There = true
				w.Management.Put(clustertest.CRD("clusters", "cluster.x-k8s.io", "v1beta1", "Cluster"))
				w.Management.Put(kubetest.Object(clustertest.CAPI, "Cluster", config.DefaultNamespace, "k8s", nil))
			}},
		"its objects were in another namespace": {says: "set NAMESPACE=prod",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
				w.Workload.Put(node(name, 100, "prod"))
			}},
		"the kubeconfig is another cluster's": {says: "that is another cluster's",
			spoil: func(w *clustertest.Environment, _ platform.Files, _ *servedBy) {
				w.Workload.Put(node(name, 7, "default"))
			}},
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
			w.Hetzner.SetServers(schema.Server{ID: 100, Name: name, Status: "running",
				Location:   schema.Location{Name: "nbg1"},
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
			source, err := Collector{Cfg: w.Config(), Tools: tools, Note: m.note}.Read(t.Context(), func(string,
				...any) {
			}, "v1")
			_, refused := errors.AsType[*usage.Error](err)
			switch {
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || refused == c.fails):
				t.Errorf("%v; a refusal: %v", err, refused)
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says == "":
				h := source.Contents.Header
				if !h.FromServers || h.SelfManaged != c.self || h.UID != "workload" ||
					len(source.Contents.Secrets) != 5 {
					t.Errorf("%+v, %d Secrets", h, len(source.Contents.Secrets))
				}
			}
		})
	}
}
