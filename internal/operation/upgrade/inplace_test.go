package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	talosapi "github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// installing plays Talos: a server that is told to upgrade runs the new version at once.
type installing struct {
	etcdOf
	told *[]string
	ask  func(server string) error // before it upgrades
}

func (i installing) Upgrade(_ context.Context, r talosapi.Route, installer string) error {
	i.p.mu.Lock()
	defer i.p.mu.Unlock()
	name := i.p.at(r)
	if err := i.ask(name); err != nil {
		return err
	}
	*i.told = append(*i.told, name+" "+installer)
	_, version, _ := strings.Cut(installer, ":")
	i.p.runs(name, version)
	return nil
}

// at is the server at a route.
func (p *provider) at(r talosapi.Route) string {
	for _, name := range p.servers {
		m := p.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		for _, address := range append(capi.Addresses(m, capi.AddressInternal), capi.Addresses(m, capi.AddressExternal)...) {
			if address == r.Node || r.Node == "" && address == r.Endpoint {
				return name
			}
		}
	}
	return ""
}

func (p *provider) runs(name, version string) {
	p.Workload.Change("v1", "Node", "", name, object{"status": object{"nodeInfo": object{"osImage": "Talos (" + version + ")"}}})
}

// inPlace is a cluster whose servers were made from its template, and the provider's rule for replacing one.
func inPlace(t *testing.T) (p *provider, tools platform.Tools, replaced func() []string) {
	t.Helper()
	p, tools = newProvider(t)
	p.Hetzner.SetImages(hetznertest.Image(1, "talos-amd64-v1.13.9", "x86", "available"),
		hetznertest.Image(2, "talos-amd64-v1.13.12", "x86", "available"))
	template := capi.Text(p.controlPlane(), "spec", "infrastructureTemplate", "name")
	var servers []schema.Server
	for _, name := range p.servers {
		p.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name,
			object{"metadata": object{"annotations": object{capi.ClonedFromAnnotation: template}}})
		p.runs(name, "v1.13.9")
		m := p.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		servers = append(servers, schema.Server{ID: p.id(name), Name: name, Status: "running",
			Labels:     map[string]string{"caph-cluster-k8s": "owned", "machine_type": "control_plane"},
			PrivateNet: []schema.ServerPrivateNet{{IP: capi.Addresses(m, capi.AddressInternal)[0]}}})
	}
	p.Hetzner.SetServers(servers...)
	p.Management.SetReact(nil)
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		object{"metadata": object{"generation": 1}, "status": object{"observedGeneration": 1}})
	var replaces []string
	var provider sync.WaitGroup
	watching, stop := context.WithCancel(t.Context())
	provider.Go(func() {
		for watching.Err() == nil {
			replaces = append(replaces, p.mismatches()...)
		}
	})
	t.Cleanup(func() { stop(); provider.Wait() })
	return p, tools, func() []string {
		stop()
		provider.Wait()
		return replaces
	}
}

// mismatches are the servers that the provider would replace now. Like the real one it reads the TalosControlPlane some
// time before it reads the servers, and says at the end which generation it has looked at.
func (p *provider) mismatches() (all []string) {
	tcp := p.controlPlane()
	time.Sleep(30 * time.Millisecond)
	if version := capi.Text(tcp, "spec", "controlPlaneConfig", "controlplane", "talosVersion"); version != "v1.13.9" {
		all = append(all, "all: another TalosConfig")
	}
	for _, name := range p.servers {
		m := p.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name)
		from, has := m.GetAnnotations()[capi.ClonedFromAnnotation]
		if template := capi.Text(tcp, "spec", "infrastructureTemplate", "name"); has && from != template {
			all = append(all, fmt.Sprintf("%s: made from %s, not %s", name, from, template))
		}
	}
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		object{"status": object{"observedGeneration": tcp.GetGeneration()}})
	return all
}

// Each server is upgraded once, one after another, and then stands for one of the new template without being replaced.
// A run that follows has nothing to do and no deviation to name.
func TestTalosInPlace(t *testing.T) {
	p, tools, replaced := inPlace(t)
	var told []string
	refused := 0
	tools.Talos = func([]byte) (talosapi.Client, error) {
		return installing{etcdOf{p: p}, &told, func(name string) error {
			if refused++; refused == 1 {
				return fmt.Errorf("upgrade %s: the lock is taken", name) // what Talos says passes
			}
			return nil
		}}, nil
	}
	cfg := p.configured(t, "TALOS_VERSION=v1.13.12")
	x, err := p.upgrade(t, cfg, tools, Options{InPlace: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Stages) != 2 || !strings.Contains(x.Stages[1].String(), "in place") || x.Servers() {
		t.Errorf("%+v", x)
	}
	var want []string
	for _, name := range p.servers {
		want = append(want, name+" factory.talos.dev/hcloud-installer/"+
			"ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515:v1.13.12")
	}
	if !slices.Equal(told, want) || refused != len(want)+1 {
		t.Errorf("upgraded were %q, want %q", told, want)
	}
	tcp := p.controlPlane()
	template := p.Management.Get(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace,
		capi.Text(tcp, "spec", "infrastructureTemplate", "name"))
	if image := capi.Text(template, "spec", "template", "spec", "imageName"); image != "talos-amd64-v1.13.12" {
		t.Errorf("new servers are made from %s", image)
	}
	for _, name := range p.servers {
		m := p.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name)
		if is := m.GetAnnotations()[capi.ClonedFromAnnotation]; is != template.GetName() {
			t.Errorf("%s says to be made from %q", name, is)
		}
	}
	if x, err := p.upgrade(t, cfg, tools, Options{InPlace: true}); err != nil || len(x.Stages) > 0 {
		t.Errorf("a second time: %+v, %v", x, err)
	}
	// One that was ended before it had set the last annotation is finished by the same command, without another upgrade.
	last := p.servers[2]
	p.Management.Change(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, last,
		object{"metadata": object{"annotations": object{capi.ClonedFromAnnotation: nil}}})
	before := len(told)
	if x, err := p.upgrade(t, cfg, tools, Options{InPlace: true}); err != nil || len(x.Stages) != 2 || len(told) != before {
		t.Errorf("cut off at its end: %+v, %v; upgraded again: %v", x, err, told[before:])
	}
	if is := p.Management.Get(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, last).GetAnnotations(); is[capi.ClonedFromAnnotation] != template.GetName() {
		t.Errorf("%s has the annotations %v", last, is)
	}
	if all := replaced(); len(all) > 0 {
		t.Errorf("the provider would replace servers: %q", all)
	}
}

// While etcd needs every other member, or the control plane is not whole, no server is told to upgrade.
func TestTalosInPlaceKeepsTheQuorum(t *testing.T) {
	p, tools, _ := inPlace(t)
	var told []string
	tools.Talos = func([]byte) (talosapi.Client, error) {
		return installing{etcdOf{p: p}, &told, func(name string) error {
			p.Workload.Change("v1", "Node", "", name, object{"status": object{
				"conditions": []any{object{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}}}})
			return nil
		}}, nil
	}
	cfg := p.configured(t, "TALOS_VERSION=v1.13.12")
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(4*time.Second), config.Duration(4*time.Second)
	_, err := p.upgrade(t, cfg, tools, Options{InPlace: true})
	if err == nil || !strings.Contains(err.Error(), "KubeletNotReady") || len(told) != 1 {
		t.Errorf("%d servers were upgraded: %v", len(told), err)
	}
	if from := capi.Text(p.controlPlane(), "spec", "infrastructureTemplate", "name"); !strings.HasPrefix(from,
		"k8s-control-plane") {
		t.Errorf("the template is %s", from)
	}
}
