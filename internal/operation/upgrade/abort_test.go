package upgrade

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/platform"
)

// paused has an upgrade of Kubernetes pause after the first server.
func paused(t *testing.T) (*provider, platform.Tools, config.Config) {
	t.Helper()
	p, tools := newProvider(t)
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5")
	if _, err := p.upgradeTo(t, cfg, tools, Options{}, FirstServer); err != nil {
		t.Fatal(err)
	}
	return p, tools, cfg
}

// planeOf is the control plane of a configuration.
func planeOf(t *testing.T, cfg config.Config, tools platform.Tools) *controlPlane {
	t.Helper()
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.open(t.Context(), silent)
	if err != nil {
		t.Fatal(err)
	}
	return newControlPlane(e, c)
}

// isHeld tells whether an upgrade holds the control plane provider.
func (p *provider) isHeld() bool {
	_, held := p.controlPlane().GetAnnotations()[capi.UpgradeHeldAnnotation]
	_, paused := p.controlPlane().GetAnnotations()[capi.PausedAnnotation]
	return held && paused
}

// An upgrade that is paused after the first server has made that one alone, and deleted none. Asked for again it waits
// for nothing more, and without the pause it replaces the others.
func TestPausedAfterTheFirstServer(t *testing.T) {
	p, tools, cfg := paused(t)
	before := slices.Clone(p.servers)
	if len(before) != 4 || p.made != 1 || !p.isHeld() {
		t.Fatalf("servers %v, held: %v", before, p.isHeld())
	}
	if _, err := p.upgradeTo(t, cfg, tools, Options{Resumes: true}, FirstServer); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.servers, before) || !p.isHeld() {
		t.Errorf("asked for again: servers %v, held: %v", p.servers, p.isHeld())
	}
	if _, err := p.upgradeTo(t, cfg, tools, Options{Resumes: true}, ""); err != nil {
		t.Fatal(err)
	}
	if p.made != 3 || p.isHeld() || len(p.servers) != 3 {
		t.Errorf("resumed: %d servers were made; they are %v, held: %v", p.made, p.servers, p.isHeld())
	}
}

// A change of the configuration pauses like an upgrade, and the configuration of before takes it back.
func TestConfigurationPaused(t *testing.T) {
	p, tools := newProvider(t)
	p.applied(t, tools)
	before := slices.Clone(p.servers)
	cfg := p.configured(t, "SERVER_TYPE=cx43")
	o := Options{Configuration: true, Requested: requestedOf(cfg, "SERVER_TYPE")}
	if _, err := p.upgradeTo(t, cfg, tools, o, FirstServer); err != nil {
		t.Fatal(err)
	}
	if len(p.servers) != 4 || !p.isHeld() {
		t.Fatalf("servers %v, held: %v", p.servers, p.isHeld())
	}
	o = Options{Configuration: true, Resumes: true, Other: true, Requested: requestedOf(p.Config(), "SERVER_TYPE")}
	if _, err := p.upgrade(t, p.Config(), tools, o); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.servers, before) || p.made != 1 || p.isHeld() {
		t.Errorf("servers %v of %v, held: %v", p.servers, before, p.isHeld())
	}
}

// An abort keeps the servers from before, and deletes the new one: also one that never becomes Ready, which the
// provider would wait for.
func TestAbort(t *testing.T) {
	for name, ready := range map[string]bool{"a new server that works": true, "one that never becomes Ready": false} {
		t.Run(name, func(t *testing.T) {
			p, tools := newProvider(t)
			before, was := slices.Clone(p.servers), fromControlPlane(p.controlPlane())
			cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5", "TALOS_VERSION=v1.13.10")
			p.never = !ready
			short := cfg
			if !ready {
				short.ControlPlaneTimeout = config.Duration(time.Second)
				short.NodesTimeout = config.Duration(time.Second)
			}
			if _, err := p.upgradeTo(t, short, tools, Options{}, FirstServer); (err == nil) != ready {
				t.Fatal(err)
			}
			a, err := ExamineAbort(t.Context(), cfg, tools)
			if err != nil || !slices.Equal(a.Keeps, before) || a.Removes != p.servers[3] || len(a.Back) == 0 {
				t.Fatalf("%+v, %v", a, err)
			}
			if err := RunAbort(t.Context(), cfg, tools, p.say); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.servers, before) || p.isHeld() || !fromControlPlane(p.controlPlane()).same(was) {
				t.Errorf("servers %v of %v, held: %v, made from %+v", p.servers, before, p.isHeld(),
					fromControlPlane(p.controlPlane()))
			}
			if _, err := ExamineAbort(t.Context(), cfg, tools); !errors.Is(err, ErrNotReplacing) {
				t.Errorf("a second time: %v", err)
			}
		})
	}
}

// One that was cut off after the TalosControlPlane was put back deletes the new server.
func TestAbortResumed(t *testing.T) {
	p, tools, cfg := paused(t)
	before := slices.Clone(p.servers[:3])
	plane := planeOf(t, cfg, tools)
	if _, err := plane.putBack(t.Context(), p.say); err != nil {
		t.Fatal(err)
	}
	a, err := ExamineAbort(t.Context(), cfg, tools)
	if err != nil || len(a.Back) > 0 || !slices.Equal(a.Keeps, before) || a.Removes != p.servers[3] {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := RunAbort(t.Context(), cfg, tools, p.say); err != nil || !slices.Equal(p.servers, before) {
		t.Errorf("%v: servers %v", err, p.servers)
	}
}

// It is refused, and changes nothing, once a server from before was deleted.
func TestAbortRefused(t *testing.T) {
	p, tools, cfg := paused(t)
	p.mu.Lock()
	gone := p.servers[0]
	p.remove(gone)
	p.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, gone)
	p.mu.Unlock()
	is := p.controlPlane()
	_, err := ExamineAbort(t.Context(), cfg, tools)
	_, refused := errors.AsType[*RefusedError](err)
	if !refused || errors.Is(err, ErrNotReplacing) || !strings.Contains(err.Error(), "is not the first server") {
		t.Errorf("%v", err)
	}
	if RunAbort(t.Context(), cfg, tools, p.say) == nil ||
		p.controlPlane().GetResourceVersion() != is.GetResourceVersion() {
		t.Errorf("the TalosControlPlane was changed: %v", p.controlPlane().Object)
	}
}

// One that was cut off when the new server was gone already lets the provider go on.
func TestAbortResumedWithoutTheNewServer(t *testing.T) {
	p, tools, cfg := paused(t)
	plane := planeOf(t, cfg, tools)
	if _, err := plane.putBack(t.Context(), p.say); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	gone := p.servers[3]
	p.remove(gone)
	p.showServers()
	p.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, gone)
	p.mu.Unlock()
	if a, err := ExamineAbort(t.Context(), cfg, tools); err != nil || a.Removes != "" || len(a.Keeps) != 3 {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := RunAbort(t.Context(), cfg, tools, p.say); err != nil || p.isHeld() {
		t.Errorf("%v, held: %v", err, p.isHeld())
	}
}

// The provider is held until it has ended what it was doing: before that nothing is put back, and nothing deleted.
func TestAbortWaitsForTheProvider(t *testing.T) {
	p, tools, cfg := paused(t)
	reconcilesWithin = time.Hour
	is := p.controlPlane()
	cfg.LoadBalancerTimeout = config.Duration(time.Second)
	err := RunAbort(t.Context(), cfg, tools, p.say)
	if err == nil || !strings.Contains(err.Error(), "may be replacing a server until") || len(p.servers) != 4 ||
		p.controlPlane().GetResourceVersion() != is.GetResourceVersion() {
		t.Errorf("%v; servers %v", err, p.servers)
	}
}

// An API server that does not answer is waited for, and is no refusal.
func TestAbortWithoutTheAPI(t *testing.T) {
	p, tools, cfg := paused(t)
	cfg.LoadBalancerTimeout = config.Duration(time.Second)
	plane := planeOf(t, cfg, tools)
	p.Management.Fail = func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, "/taloscontrolplanes/") {
			return http.StatusServiceUnavailable, "not now"
		}
		return 0, ""
	}
	refused := (*RefusedError)(nil)
	if _, err := plane.putBack(t.Context(), p.say); err == nil || errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
}

// Another version in place of one whose new server never becomes Ready deletes that server, and none of before: the
// provider would delete the oldest.
func TestAnotherVersionInPlaceOfOneThatFails(t *testing.T) {
	p, tools := newProvider(t)
	p.Hetzner.SetImages(hetznertest.Image(2, "talos-amd64-v1.13.10", "x86", "available"),
		hetznertest.Image(3, "talos-amd64-v1.13.12", "x86", "available"))
	before := slices.Clone(p.servers)
	p.never = true
	cfg := p.configured(t, "TALOS_VERSION=v1.13.10")
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(time.Second), config.Duration(time.Second)
	if _, err := p.upgrade(t, cfg, tools, Options{}); err == nil || len(p.servers) != 4 {
		t.Fatalf("%v: servers %v", err, p.servers)
	}
	p.mu.Lock()
	p.never = false
	failed := p.servers[3]
	p.mu.Unlock()
	other := p.configured(t, "TALOS_VERSION=v1.13.12")
	if _, err := p.upgradeTo(t, other, tools, Options{Resumes: true}, FirstServer); err != nil {
		t.Fatal(err)
	}
	if len(p.servers) != 4 || !slices.Equal(p.servers[:3], before) || p.servers[3] == failed || !p.isHeld() {
		t.Errorf("the servers are %v, before %v and %s", p.servers, before, failed)
	}
}

// While Hetzner does not answer, the provider is held all the same: Machines and nodes are enough to decide that.
func TestHeldWithoutHetzner(t *testing.T) {
	p, tools := newProvider(t)
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", object{
		"spec": object{"replicas": int64(4), "infrastructureTemplate": object{"name": "k8s-control-plane-other"}}})
	p.mu.Lock()
	is := fromControlPlane(p.controlPlane())
	is.Version = "v1.35.4"
	p.add("k8s-control-plane-other-new", is)
	p.ready("k8s-control-plane-other-new")
	p.mu.Unlock()
	cfg := p.Config()
	cfg.ControlPlaneTimeout, cfg.NodesTimeout = config.Duration(time.Second), config.Duration(time.Second)
	plane := planeOf(t, cfg, tools)
	plane.first = true
	p.Hetzner.Close()
	if v, err := plane.look(t.Context(), p.controlPlane()); err == nil || len(v.updated) != 1 || len(v.outdated) != 3 {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := plane.roll(t.Context(), p.say, "the first server"); err == nil || !p.isHeld() {
		t.Errorf("%v; held: %v", err, p.isHeld())
	}
}

// A control plane of one server has no other that could be kept.
func TestNoFirstServer(t *testing.T) {
	p, tools := newProvider(t)
	plan, err := NewPlan(p.Config(), tools, Examination{Stages: []Stage{{Name: StageKubernetes + "1-36-5"}},
		Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Targets(FirstServer); err == nil {
		t.Error("it is a target")
	}
	p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane", object{
		"spec": object{"rolloutStrategy": object{"rollingUpdate": object{"maxSurge": int64(0)}}}})
	cfg := p.configured(t, "KUBERNETES_VERSION=v1.36.5")
	if _, err := p.upgradeTo(t, cfg, tools, Options{}, FirstServer); err == nil ||
		!strings.Contains(err.Error(), "maxSurge") || p.made > 0 {
		t.Errorf("without an additional server: %v; %d were made", err, p.made)
	}
}
