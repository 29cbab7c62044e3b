package upgrade

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// applied records that the configuration of the fake environment was applied.
func (p *provider) applied(t *testing.T, tools platform.Tools) {
	t.Helper()
	cfg := p.Config()
	sources, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	if err == nil {
		err = changes.RecordApplied(t.Context(), cfg, tools, sources, flow.Memory())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func requestedOf(cfg config.Config, variables ...string) (all []changes.Deviation) {
	for _, v := range config.Variables() {
		if slices.Contains(variables, v.Name) {
			all = append(all, changes.Deviation{Variable: v.Name, Wanted: v.Get(cfg), Requested: true})
		}
	}
	return all
}

func (p *provider) object(kind, group, name string) *unstructured.Unstructured {
	return p.Management.Get(group, kind, config.DefaultNamespace, name)
}

// What was changed in the configuration reaches the cluster's objects, one server after another; what was changed with
// kubectl stays, and so does what the configuration was not changed in.
func TestConfiguration(t *testing.T) {
	p, tools := newProvider(t)
	p.applied(t, tools)
	const loadBalancer = "controlPlaneLoadBalancer"
	p.Management.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", object{
		"metadata": object{"labels": object{"team": "blue"}},
		"spec":     object{loadBalancer: object{"algorithm": "least_connections"}}})
	cfg := p.configured(t, "SERVER_TYPE=cx43", "LOAD_BALANCER_TYPE=lb21", "CONTROL_PLANE_REPLICAS=5")
	o := Options{Configuration: true,
		Requested: requestedOf(cfg, "SERVER_TYPE", "LOAD_BALANCER_TYPE", "CONTROL_PLANE_REPLICAS")}
	kept := cfg
	kept.ControlPlaneReplicas = 3
	x, err := p.upgrade(t, kept, tools, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Stages) != 1 || x.Stages[0].Name != StageConfiguration || !x.Servers() || len(x.Configuration) != 2 {
		t.Errorf("%+v", x)
	}
	if p.made != 3 || p.held == 0 {
		t.Errorf("%d servers were made, and the provider was held %d times", p.made, p.held)
	}
	template := p.object("HCloudMachineTemplate", clustertest.CAPH,
		capi.Text(p.controlPlane(), "spec", "infrastructureTemplate", "name"))
	if template == nil || capi.Text(template, "spec", "template", "spec", "type") != "cx43" {
		t.Errorf("the template of the control plane is %v", template)
	}
	infrastructure := p.object("HetznerCluster", clustertest.CAPH, "k8s")
	replicas, _, _ := unstructured.NestedFieldNoCopy(p.controlPlane().Object, "spec", "replicas")
	if capi.Text(infrastructure, "spec", loadBalancer, "type") != "lb21" || infrastructure.GetLabels()["team"] != "blue" ||
		capi.Text(infrastructure, "spec", loadBalancer, "algorithm") != "least_connections" || fmt.Sprint(replicas) != "3" {
		t.Errorf("the HetznerCluster is %v with the labels %v; the control plane %v", infrastructure.Object["spec"],
			infrastructure.GetLabels(), p.controlPlane().Object["spec"])
	}
	if x, err := p.upgrade(t, kept, tools, o); err != nil || len(x.Stages) > 0 {
		t.Errorf("a second time: %+v, %v", x, err)
	}
	// A server type of the list that the servers have stays, whatever is in stock.
	list := p.configured(t, "SERVER_TYPE=cx53,cx43", "LOAD_BALANCER_TYPE=lb21")
	o.Requested = requestedOf(list, "SERVER_TYPE", "LOAD_BALANCER_TYPE")
	if x, err := p.upgrade(t, list, tools, o); err != nil || len(x.Stages) > 0 {
		t.Errorf("with a list: %+v, %v", x, err)
	}
	// Cut off after its last change it has to wait for the servers, and that is what was agreed to.
	r := &Record{To: x.To, Configuration: x.Configuration}
	o.Resumes, o.Recorded = true, r.Configuration
	if x, err := Examine(t.Context(), kept, tools, o, p.say); err != nil || len(x.Stages) != 1 || !r.Same(x) {
		t.Errorf("resumed: %+v, %v", x, err)
	}
}

// A change that was cut off, and is undone with the configuration of before: what the cluster has of it is changed
// back, though the configuration is what was applied last.
func TestConfigurationUndone(t *testing.T) {
	p, tools := newProvider(t)
	p.applied(t, tools)
	p.Management.Change(clustertest.CAPH, "HetznerCluster", config.DefaultNamespace, "k8s", object{
		"spec": object{"controlPlaneLoadBalancer": object{"type": "lb21", "algorithm": "least_connections"}}})
	o := Options{Configuration: true}
	if x, err := p.upgrade(t, p.Config(), tools, o); err != nil || len(x.Stages) > 0 {
		t.Errorf("what was changed by other means: %+v, %v", x, err)
	}
	o.Other, o.Requested = true, requestedOf(p.Config(), "LOAD_BALANCER_TYPE")
	if x, err := p.upgrade(t, p.Config(), tools, o); err != nil || len(x.Stages) != 1 {
		t.Errorf("%+v, %v", x, err)
	}
	infrastructure := p.object("HetznerCluster", clustertest.CAPH, "k8s")
	const balancer = "controlPlaneLoadBalancer"
	if kind, how := capi.Text(infrastructure, "spec", balancer, "type"),
		capi.Text(infrastructure, "spec", balancer, "algorithm"); kind != "lb11" || how == "least_connections" {
		t.Errorf("the load balancer is %s with %s", kind, how)
	}
}

// A record keeps that a change was begun with another configuration, until it has ended.
func TestRecordOfAnotherConfiguration(t *testing.T) {
	files := platform.FilesIn(t.TempDir())
	another := Examination{Configuration: []string{"another"}, digest: "2", other: true}
	for _, x := range []Examination{{Configuration: []string{"one"}, digest: "1"}, another, another} {
		if err := Begin(files, x, Said{}); err != nil {
			t.Fatal(err)
		}
		r, err := ReadRecord(files)
		if err != nil || r.Digest != x.digest || r.Other != x.other || !r.Agreed(x) {
			t.Errorf("%+v, %v", r, err)
		}
		if x.digest = "3"; r.Agreed(x) {
			t.Error("another configuration counts as agreed to")
		}
	}
}

// An upgrade changes versions alone, whatever else is configured.
func TestAnUpgradeLeavesTheConfiguration(t *testing.T) {
	p, tools := newProvider(t)
	p.applied(t, tools)
	if x, err := p.upgrade(t, p.configured(t, "LOAD_BALANCER_TYPE=lb21"), tools, Options{}); err != nil || len(x.Stages) > 0 {
		t.Errorf("%+v, %v", x, err)
	}
}

// A value that a cluster keeps for its life is refused, and nothing is changed.
func TestImmutableConfiguration(t *testing.T) {
	p, tools := newProvider(t)
	p.applied(t, tools)
	cfg := p.configured(t, "POD_CIDR=10.20.128.0/17", "LOAD_BALANCER_TYPE=lb21")
	_, err := p.upgrade(t, cfg, tools, Options{Configuration: true, Requested: requestedOf(cfg, "POD_CIDR", "LOAD_BALANCER_TYPE")})
	if refused, is := errors.AsType[*RefusedError](err); !is || !strings.Contains(refused.Error(), "POD_CIDR") {
		t.Errorf("%v", err)
	}
	if capi.Text(p.object("HetznerCluster", clustertest.CAPH, "k8s"), "spec", "controlPlaneLoadBalancer", "type") != "lb11" {
		t.Error("the load balancer was changed")
	}
}
