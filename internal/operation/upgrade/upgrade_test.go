package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	talosapi "github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

type object = clustertest.Map

// provider plays the control plane provider: it creates one server more, which is not Ready, and deletes the oldest of
// those that differ when it looks again, by the health of etcd alone, unless it is paused.
type provider struct {
	*clustertest.Environment
	mu      sync.Mutex
	servers []string // from the oldest to the newest
	from    map[string]madeFrom
	made    int
	held    int  // how often it was paused
	never   bool // a new server never becomes Ready
	said    []string
}

func newProvider(t *testing.T) (*provider, platform.Tools) {
	t.Helper()
	settles := reconcilesWithin
	reconcilesWithin = 0
	t.Cleanup(func() { reconcilesWithin = settles })
	w := clustertest.New(t)
	p := &provider{Environment: w, from: map[string]madeFrom{}}
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes", "wait-releases"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	is := fromControlPlane(p.controlPlane())
	for i := range 3 {
		name := fmt.Sprintf("k8s-control-plane-%d", i)
		p.servers = append(p.servers, name)
		w.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{"spec": object{"version": "v1.35.4"}})
		is.Version = "v1.35.4"
		p.isMade(name, is)
	}
	w.Management.Fail = func(r *http.Request) (int, string) {
		if _, name, of := strings.Cut(r.URL.Path, "/machines/"); of && r.Method == http.MethodDelete {
			go func() { // the server must not be asked for its own objects in the middle of a request
				p.mu.Lock()
				defer p.mu.Unlock()
				p.remove(name)
				p.showServers()
			}()
		}
		return 0, ""
	}
	w.Management.SetReact(p.react)
	w.Hetzner.SetImages(hetznertest.Image(1, "talos-amd64-v1.13.9", "x86", "available"),
		hetznertest.Image(2, "talos-amd64-v1.13.10", "x86", "available"))
	tools := w.Tools()
	tools.Talos = func([]byte) (talosapi.Client, error) { return etcdOf{p: p}, nil }
	return p, tools
}

// etcdOf answers for the members that the provider has.
type etcdOf struct {
	clustertest.HealthyTalos
	p *provider
}

func (e etcdOf) EtcdMembers(context.Context, talosapi.Route) (members []talosapi.EtcdMember, err error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	for _, name := range e.p.servers {
		members = append(members, talosapi.EtcdMember{Name: name})
	}
	return members, nil
}

func (p *provider) react(o *unstructured.Unstructured) {
	if o.GetKind() != "TalosControlPlane" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, paused := o.GetAnnotations()[capi.PausedAnnotation]; paused {
		p.held++
		if !p.never {
			p.ready(p.servers[len(p.servers)-1])
		}
		return
	}
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, o.GetName(),
		object{"status": object{"observedGeneration": o.GetGeneration()}})
	is := fromControlPlane(o)
	differs := func(name string) bool { return !p.from[name].same(is) }
	outdated := slices.IndexFunc(p.servers, differs)
	if outdated >= 0 && len(p.servers) > 3 {
		oldest := p.servers[outdated]
		p.remove(oldest)
		p.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, oldest)
		outdated = slices.IndexFunc(p.servers, differs)
	}
	if outdated >= 0 && len(p.servers) == 3 {
		p.made++
		p.add(fmt.Sprintf("%s-new%d", is.Template, p.made), is)
	}
	p.showServers()
}

// showServers has Hetzner know the servers.
func (p *provider) showServers() {
	var servers []schema.Server
	for i, name := range p.servers {
		servers = append(servers, schema.Server{ID: p.id(name), Name: name, Status: "running",
			Labels:     map[string]string{"caph-cluster-k8s": "owned"},
			PrivateNet: []schema.ServerPrivateNet{{IP: fmt.Sprintf("10.10.64.%d", 2+i)}}})
	}
	p.Hetzner.SetServers(servers...)
}

// id of the server of a name.
func (p *provider) id(name string) int64 {
	n := p.Workload.Get("v1", "Node", "", name)
	var id int64
	_, _ = fmt.Sscanf(capi.Text(n, "spec", "providerID"), "hcloud://%d", &id)
	return id
}

func (p *provider) remove(name string) {
	p.servers = slices.DeleteFunc(p.servers, func(s string) bool { return s == name })
	p.Workload.Remove("v1", "Node", "", name)
}

// isMade records what a server is made from, also in the objects that say so.
func (p *provider) isMade(name string, from madeFrom) {
	p.from[name] = from
	p.Management.Put(kubetest.Object(clustertest.CAPH, "HCloudMachine", config.DefaultNamespace, name, object{
		"metadata": object{"annotations": object{capi.ClonedFromAnnotation: from.Template},
			"labels": object{capi.ClusterNameLabel: "k8s"}}}))
	p.Management.Put(kubetest.Object(talosConfigVersion, "TalosConfig", config.DefaultNamespace, name,
		object{"spec": from.Config}))
	p.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{"spec": object{
		"bootstrap": object{"configRef": object{"kind": "TalosConfig", "name": name}}}})
}

func (p *provider) add(name string, from madeFrom) {
	private := fmt.Sprintf("10.10.64.%d", 20+p.made)
	p.servers = append(p.servers, name)
	p.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{
		"metadata": object{"labels": object{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""},
			"creationTimestamp": time.Now().Add(time.Duration(p.made) * time.Second).UTC().Format(time.RFC3339)},
		"spec": object{"version": from.Version, "infrastructureRef": object{"name": name}},
		"status": object{"nodeRef": object{"name": name}, "addresses": []any{
			object{"type": "InternalIP", "address": private}, object{"type": "ExternalIP", "address": "127.0.1.9"}}},
	}))
	p.Workload.Put(kubetest.Object("v1", "Node", "", name, object{
		"metadata": object{"labels": object{capi.ControlPlaneRole: ""}},
		"spec":     object{"providerID": fmt.Sprintf("hcloud://%d", 200+p.made)},
		"status": object{"nodeInfo": object{"kubeletVersion": from.Version, "osImage": "Talos (v1.13.10)"},
			"conditions": []any{object{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}},
			"addresses":  []any{object{"type": "InternalIP", "address": private}}},
	}))
	p.isMade(name, from)
}

func (p *provider) ready(name string) {
	p.Workload.Change("v1", "Node", "", name, object{"status": object{
		"conditions": []any{object{"type": "Ready", "status": "True"}}}})
}

func (p *provider) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said = append(p.said, fmt.Sprintf(format, args...))
}

// configured is the configuration with other versions.
func (p *provider) configured(t *testing.T, values ...string) config.Config {
	t.Helper()
	cfg := p.Config()
	for _, v := range values {
		clustertest.Configure(t, &cfg, v)
	}
	return cfg
}

// upgrade examines and runs an upgrade.
func (p *provider) upgrade(t *testing.T, cfg config.Config, tools platform.Tools, o Options) (Examination, error) {
	t.Helper()
	return p.upgradeTo(t, cfg, tools, o, "")
}

// upgradeTo also pauses it after a stage.
func (p *provider) upgradeTo(t *testing.T, cfg config.Config, tools platform.Tools, o Options, pauseAfter string) (
	Examination, error) {
	t.Helper()
	x, err := Examine(t.Context(), cfg, tools, o, p.say)
	if err != nil || len(x.Stages) == 0 {
		return x, err
	}
	plan, err := NewPlan(cfg, tools, x)
	if err != nil {
		t.Fatal(err)
	}
	targets, err := plan.Targets(pauseAfter)
	if err != nil {
		return x, err
	}
	_, err = clustertest.Run(t, plan.Graph, targets, flow.Memory(), nil)
	return x, err
}

func (p *provider) controlPlane() *unstructured.Unstructured {
	return p.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane")
}

// The provider is held while each new server is not Ready, and is let go on at the end; what else was changed in the
// control plane's objects stays.
func TestServersAreReplacedOneAfterAnother(t *testing.T) {
	p, tools := newProvider(t)
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
		object{"metadata": object{"annotations": object{"example.com/kept": "yes"}}})
	p.mu.Lock()
	p.held, p.made = 0, 0
	p.mu.Unlock()
	was := p.controlPlane()
	cfg := p.configured(t, "TALOS_VERSION=v1.13.10", "KUBERNETES_VERSION=v1.36.5")
	x, err := p.upgrade(t, cfg, tools, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Stages) != 3 || x.From[kubernetes] != "v1.35.4" {
		t.Errorf("%+v", x)
	}
	if p.held != 6 || p.made != 6 {
		t.Errorf("it was held %d times while %d servers came, want 6 of 6", p.held, p.made)
	}
	is := p.controlPlane()
	template := p.Management.Get(clustertest.CAPH, "HCloudMachineTemplate", config.DefaultNamespace,
		capi.Text(is, "spec", "infrastructureTemplate", "name"))
	spec := func(o *unstructured.Unstructured, fields ...string) string {
		return capi.Text(o, append([]string{"spec"}, fields...)...)
	}
	if spec(is, "version") != "v1.36.5" || spec(is, "controlPlaneConfig", "controlplane", "talosVersion") != "v1.13.10" ||
		template == nil || spec(template, "template", "spec", "imageName") != "talos-amd64-v1.13.10" ||
		spec(template, "template", "spec", "type") != "cx33" {
		t.Errorf("the control plane is %v, its template %v", is.Object["spec"], template)
	}
	if a := is.GetAnnotations(); a["example.com/kept"] != "yes" || a[capi.PausedAnnotation] != "" ||
		a[capi.UpgradeHeldAnnotation] != "" {
		t.Errorf("its annotations are %v, before %v", a, was.GetAnnotations())
	}
	if x, err := p.upgrade(t, cfg, tools, Options{}); err != nil || len(x.Stages) > 0 {
		t.Errorf("a second time: %+v, %v", x, err)
	}
}

// A server that never becomes Ready stops it: the others are there, and the provider is held.
func TestServerThatNeverBecomesReady(t *testing.T) {
	p, tools := newProvider(t)
	p.never = true
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5")
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(time.Second), config.Duration(time.Second)
	_, err := p.upgrade(t, cfg, tools, Options{})
	if err == nil || !strings.Contains(err.Error(), "KubeletNotReady") {
		t.Fatalf("%v", err)
	}
	if len(p.servers) != 4 || !slices.Equal(p.servers[:3], []string{"k8s-control-plane-0", "k8s-control-plane-1",
		"k8s-control-plane-2"}) {
		t.Errorf("the servers are %v", p.servers)
	}
	held, err := Held(t.Context(), cfg, tools)
	if err != nil || !strings.Contains(held, "no further server is replaced") {
		t.Errorf("%q, %v", held, err)
	}
	p.mu.Lock()
	p.never = false
	p.ready(p.servers[3])
	p.mu.Unlock()
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = p.Config().ControlPlaneTimeout, p.Config().NodesTimeout
	if _, err := p.upgrade(t, cfg, tools, Options{Resumes: true}); err != nil {
		t.Fatal(err)
	}
	if held, err := Held(t.Context(), cfg, tools); held != "" || err != nil {
		t.Errorf("at the end: %q, %v", held, err)
	}
}

// An upgrade that was cut off while the server went that the webhooks ran on waits for them; one that only begins says so.
func TestAResumedUpgradeWaitsForWebhooks(t *testing.T) {
	p, tools := newProvider(t)
	var left atomic.Int32
	p.Management.Fail = func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/clusters/k8s") && left.Add(-1) >= 0 {
			return http.StatusInternalServerError,
				"conversion webhook for cluster.x-k8s.io/v1beta2, Kind=Cluster failed: connection refused"
		}
		return 0, ""
	}
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5")
	left.Store(1)
	if _, err := Examine(t.Context(), cfg, tools, Options{}, p.say); err == nil || !strings.Contains(err.Error(), "webhook") {
		t.Errorf("it begins: %v", err)
	}
	left.Store(1)
	x, err := Examine(t.Context(), cfg, tools, Options{Resumes: true}, p.say)
	if err != nil || len(x.Stages) != 1 || left.Load() >= 0 {
		t.Fatalf("%v: %v, %+v", left.Load(), err, x)
	}
	plan, err := NewPlan(cfg, tools, x)
	if err != nil {
		t.Fatal(err)
	}
	left.Store(1) // the server goes after it was examined
	if _, err := clustertest.Run(t, plan.Graph, []string{x.Stages[0].Name}, flow.Memory(), nil); err != nil || left.Load() >= 0 {
		t.Errorf("%v, %d", err, left.Load())
	}
}

// What keeps an upgrade from beginning is said all at once, and nothing is changed.
func TestRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*provider)
		want   []string
		values []string // of the configuration
	}{
		"the image of the old Talos": {change: func(*provider) {}, want: []string{"is the image of the servers that there are"},
			values: []string{"TALOS_VERSION=v1.13.10", "IMAGE_NAME=talos-amd64-v1.13.9"}},
		"an even number": {change: func(p *provider) {
			p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				object{"spec": object{"replicas": 4}})
		}, want: []string{"4 servers, an even number", "scale control-plane 3"}},
		"a server that is not Ready": {change: func(p *provider) {
			p.Workload.Change("v1", "Node", "", "k8s-control-plane-1", object{"status": object{
				"conditions": []any{object{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}}}})
		}, want: []string{"is not whole: k8s-control-plane-1: not Ready"}},
		"a budget that allows nothing": {change: func(p *provider) {
			p.Workload.Put(kubetest.Object("policy/v1", "PodDisruptionBudget", "shop", "web", object{
				"spec":   object{"selector": object{"matchLabels": object{"app": "web"}}},
				"status": object{"expectedPods": 2, "disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}}))
			p.Workload.Put(kubetest.Object("v1", "Pod", "shop", "web-1", object{
				"metadata": object{"labels": object{"app": "web"}}, "spec": object{"nodeName": "k8s-control-plane-0"}}))
		}, want: []string{"PodDisruptionBudget shop/web", "web-1 on k8s-control-plane-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, tools := newProvider(t)
			p.Management.SetReact(nil)
			tt.change(p)
			version := p.controlPlane().GetResourceVersion()
			_, err := p.upgrade(t, p.configured(t, append([]string{"KUBERNETES_VERSION=v1.36.5"}, tt.values...)...), tools,
				Options{})
			var refused *RefusedError
			if !errors.As(err, &refused) {
				t.Fatalf("%v", err)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if p.controlPlane().GetResourceVersion() != version {
				t.Error("the control plane was changed")
			}
		})
	}
}

// Only what has another version is upgraded: in the management cluster, and in the cluster itself where the pivot that
// follows needs it.
func TestProvidersAreUpgraded(t *testing.T) {
	p, tools := newProvider(t)
	cfg := p.configured(t, "CAPH_VERSION=v1.1.12")
	if _, err := p.upgrade(t, cfg, tools, Options{}); err != nil {
		t.Fatal(err)
	}
	if len(p.Upgrades) != 1 || !slices.Equal(p.Upgrades[0].InfrastructureProviders, []string{"hetzner:v1.1.12"}) ||
		p.Upgrades[0].CoreProvider != "" || len(p.Upgrades[0].BootstrapProviders) > 0 {
		t.Errorf("%+v", p.Upgrades)
	}
	if p.made > 0 {
		t.Errorf("%d servers were replaced", p.made)
	}
	clustertest.InstallProviders(p.Workload, cfg)
	cfg = p.configured(t, "CAPH_VERSION=v1.1.13")
	if _, err := p.upgrade(t, cfg, tools, Options{}); err != nil {
		t.Fatal(err)
	}
	if len(p.Upgrades) != 3 || p.Upgrades[1].Kubeconfig.Path == p.Upgrades[2].Kubeconfig.Path {
		t.Errorf("%+v", p.Upgrades[1:])
	}
}
