package upgrade

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	machineconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	talosapi "github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/platform"
)

const talosConfigVersion = "bootstrap.cluster.x-k8s.io/v1alpha3"

// configuredServers is a cluster whose servers run with machine configurations, and the control plane provider's rule
// for replacing one of them.
type configuredServers struct {
	*provider
	tools    platform.Tools
	mu       sync.Mutex
	running  map[string]string // server → its machine configuration
	told     []string          // servers, in the order in which they were changed
	checked  int
	refuses  func(server string) error // what Talos says to a change; nil: it takes it
	replaces []string                  // what the provider would have replaced
	// refusesMachines has the API server refuse a change of the second Machine.
	refusesMachines atomic.Bool
}

func newConfiguredServers(t *testing.T) *configuredServers {
	t.Helper()
	p, tools, _ := inPlace(t)
	p.applied(t, tools)
	if err := tools.Files.Write(platform.Talosconfig, p.Talosconfig); err != nil {
		t.Fatal(err)
	}
	c := &configuredServers{provider: p, tools: tools, running: map[string]string{}}
	is, err := checks.MachineConfig(p.Config(), p.controlPlane())
	if err != nil {
		t.Fatal(err)
	}
	text, err := is.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	spec := controlPlaneSpecOf(p.controlPlane())
	for _, name := range p.servers {
		machine := p.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		p.Management.Put(kubetest.Object(talosConfigVersion, "TalosConfig", config.DefaultNamespace, name, object{
			"metadata": object{"uid": "config-" + name, "ownerReferences": []any{object{"apiVersion": clustertest.CAPI,
				"kind": "Machine", "name": name, "uid": string(machine.GetUID()), "controller": true}}}, "spec": spec}))
		p.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{
			"spec": object{"bootstrap": object{"dataSecretName": name + "-bootstrap-data",
				"configRef": object{"kind": "TalosConfig", "name": name, "uid": "config-" + name}}}})
		p.Management.Put(kubetest.Object("v1", "Secret", config.DefaultNamespace, name+"-bootstrap-data", object{
			"metadata": object{"ownerReferences": []any{object{"apiVersion": talosConfigVersion, "kind": "TalosConfig",
				"name": name, "uid": "config-" + name, "controller": true}}},
			"data": object{capi.BootstrapDataKey: base64.StdEncoding.EncodeToString(text)}}))
		c.running[name] = string(text)
	}
	p.Management.Put(kubetest.Object("apps/v1", "Deployment", "cacppt-system", "cacppt-controller-manager", object{
		"metadata": object{"labels": object{capi.ProviderLabel: capi.ControlPlaneProviderName}, "generation": 1},
		"spec":     object{"replicas": 1, "selector": object{"matchLabels": object{"control-plane": "cacppt"}}}}))
	p.Management.Fail = func(r *http.Request) (int, string) {
		if c.refusesMachines.Load() && r.Method == http.MethodPatch &&
			strings.HasSuffix(r.URL.Path, "/machines/"+p.servers[1]) {
			return http.StatusForbidden, "no change of Machines"
		}
		return 0, ""
	}
	c.tools.Talos = func([]byte) (talosapi.Client, error) { return runs{etcdOf{p: p}, c}, nil }
	c.followDeployment(t)
	return c
}

// followDeployment plays Kubernetes for the provider's Deployment, whose Pod is replaced a while after a restart, and
// the provider, which looks for servers to replace in TalosConfigs that it read when it started.
func (c *configuredServers) followDeployment(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var playing sync.WaitGroup
	playing.Go(func() {
		restarted, cached := "", map[string]any{}
		for ctx.Err() == nil {
			d := c.Management.Get("apps/v1", "Deployment", "cacppt-system", "cacppt-controller-manager")
			annotations, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "annotations")
			if now := annotations[restartedAnnotation]; now != restarted {
				time.Sleep(20 * time.Millisecond) // as long as a Pod takes to end: nothing tells when
				c.Management.Remove("v1", "Pod", "cacppt-system", "cacppt"+restarted)
				restarted, cached = now, nil
			}
			c.Management.Put(kubetest.Object("v1", "Pod", "cacppt-system", "cacppt"+restarted,
				object{"metadata": object{"labels": object{"control-plane": "cacppt"}, "uid": "pod" + restarted}}))
			c.Management.Change("apps/v1", "Deployment", "cacppt-system", "cacppt-controller-manager",
				object{"status": object{"observedGeneration": d.GetGeneration(), "replicas": 1, "updatedReplicas": 1,
					"readyReplicas": 1, "availableReplicas": 1}})
			tcp := c.controlPlane()
			if len(cached) == 0 { // it has just started
				cached = c.configs()
			}
			if capi.Text(tcp, strategyType...) != onDelete {
				for name, spec := range cached {
					if !reflect.DeepEqual(spec, controlPlaneSpecOf(tcp)) && !slices.Contains(c.replaces, name) {
						c.replaces = append(c.replaces, name)
					}
				}
			}
			time.Sleep(5 * time.Millisecond) // the provider looks from time to time, whatever happens
		}
	})
	t.Cleanup(func() { stop(); playing.Wait() })
}

// configs are the specs of the TalosConfigs that the Machines refer to.
func (c *configuredServers) configs() map[string]any {
	specs := map[string]any{}
	for _, name := range c.servers {
		m := c.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		o := c.Management.Get(talosConfigVersion, "TalosConfig", config.DefaultNamespace, capi.Text(m, configRef...))
		if o == nil {
			specs[name] = "none"
		} else {
			specs[name] = o.Object["spec"]
		}
	}
	return specs
}

// runs plays the Talos of the servers.
type runs struct {
	etcdOf
	c *configuredServers
}

func (r runs) MachineConfig(_ context.Context, at talosapi.Route) (machineconfig.Provider, error) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return configloader.NewFromBytes([]byte(r.c.running[r.c.at(at)]))
}

func (r runs) CheckMachineConfig(_ context.Context, at talosapi.Route, _ []byte) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.checked++
	if r.c.refuses != nil {
		return r.c.refuses(r.c.at(at))
	}
	return nil
}

func (r runs) ApplyMachineConfig(_ context.Context, at talosapi.Route, text []byte) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	name := r.c.at(at)
	r.c.told = append(r.c.told, name)
	r.c.running[name] = string(text)
	return nil
}

// patch adds a patch to the manifest of the cluster.
func (c *configuredServers) patch(t *testing.T, patch string) {
	t.Helper()
	text, err := manifests.Files.ReadFile(manifests.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	const before = "      strategicPatches:\n"
	if !strings.Contains(string(text), before) {
		t.Fatalf("%s has no line %q", manifests.Cluster, before)
	}
	var lines strings.Builder
	for line := range strings.Lines(patch) {
		lines.WriteString("          " + line)
	}
	c.tools.Overrides = t.TempDir()
	path := filepath.Join(c.tools.Overrides, "manifests", "cluster.yaml")
	err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path,
		[]byte(strings.Replace(string(text), before, before+"        - |\n"+lines.String(), 1)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

const sysctls = "machine:\n  sysctls:\n    vm.max_map_count: \"262144\"\n"

// A patch reaches each server once, one after another, and none is replaced; what Cluster API makes new and vanished
// servers from has it, too.
func TestConfigurationInPlace(t *testing.T) {
	c := newConfiguredServers(t)
	c.patch(t, sysctls)
	o := Options{Configuration: true, InPlace: true}
	x, err := c.upgrade(t, c.Config(), c.tools, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(x.Stages) != 1 || x.Servers() || !strings.Contains(x.Stages[0].Does,
		"changes TalosControlPlane k8s-control-plane in place: machine.sysctls.vm.max_map_count (k8s-control-plane-0") {
		t.Errorf("%+v", x)
	}
	if !slices.Equal(c.told, c.servers) || c.checked < 3 {
		t.Errorf("changed were %q, want %q; %d were asked before", c.told, c.servers, c.checked)
	}
	tcp := c.controlPlane()
	if strategy := capi.Text(tcp, strategyType...); strategy != "RollingUpdate" || halfTaken(tcp) {
		t.Errorf("the TalosControlPlane has the strategy %s and the annotations %v", strategy, tcp.GetAnnotations())
	}
	for name, spec := range c.configs() {
		if !reflect.DeepEqual(spec, controlPlaneSpecOf(tcp)) {
			t.Errorf("the TalosConfig of %s is %v", name, spec)
		}
		secret := c.Management.Get("v1", "Secret", config.DefaultNamespace, name+"-bootstrap-data")
		data, _, _ := unstructured.NestedString(secret.Object, "data", capi.BootstrapDataKey)
		text, err := base64.StdEncoding.DecodeString(data)
		m := c.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		if err != nil || !strings.Contains(string(text), "vm.max_map_count: \"262144\"") ||
			secret.GetOwnerReferences()[0].Name != capi.Text(m, configRef...) {
			t.Errorf("the Secret of %s is owned by %v, and has\n%s", name, secret.GetOwnerReferences(), text)
		}
		if c.Management.Get(talosConfigVersion, "TalosConfig", config.DefaultNamespace, name) != nil {
			t.Errorf("the old TalosConfig of %s is still there", name)
		}
	}
	if len(c.replaces) > 0 {
		t.Errorf("the provider would have replaced %q", c.replaces)
	}
	if x, err := c.upgrade(t, c.Config(), c.tools, o); err != nil || len(x.Stages) > 0 {
		t.Errorf("a second time: %+v, %v", x, err)
	}
	if len(c.told) != 3 {
		t.Errorf("changed again: %q", c.told)
	}
}

// A change that was cut off is completed, or undone, where nothing of it is recorded, and meanwhile nothing else
// replaces servers.
func TestConfigurationInPlaceCutOff(t *testing.T) {
	for name, undone := range map[string]bool{"completed": false, "undone": true} {
		t.Run(name, func(t *testing.T) {
			c := newConfiguredServers(t)
			own := c.tools.Overrides
			c.patch(t, sysctls)
			o := Options{Configuration: true, InPlace: true}
			x, err := Examine(t.Context(), c.Config(), c.tools, o, c.say)
			if err != nil {
				t.Fatal(err)
			}
			// It ends when it gives the second Machine its TalosConfig.
			c.refusesMachines.Store(true)
			plan, err := NewPlan(c.Config(), c.tools, x)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := clustertest.Run(t, plan.Graph, []string{StageConfiguration}, flow.Memory(), nil); err == nil {
				t.Fatal("it was not cut off")
			}
			c.refusesMachines.Store(false)
			if undone {
				c.tools.Overrides = own
			}
			_, err = Examine(t.Context(), c.Config(), c.tools, Options{Configuration: true}, c.say)
			if refused, is := errors.AsType[*RefusedError](err); !is ||
				!strings.Contains(refused.Error(), "apply --in-place") {
				t.Errorf("without --in-place: %v", err)
			}
			if _, err := c.upgrade(t, c.Config(), c.tools, o); err != nil {
				t.Fatal(err)
			}
			for name, spec := range c.configs() {
				if !reflect.DeepEqual(spec, controlPlaneSpecOf(c.controlPlane())) {
					t.Errorf("the TalosConfig of %s is %v", name, spec)
				}
				if has := strings.Contains(c.running[name], "vm.max_map_count"); has == undone {
					t.Errorf("server %s has the sysctl: %v", name, has)
				}
			}
			if halfTaken(c.controlPlane()) || len(c.replaces) > 0 {
				t.Errorf("the provider would have replaced %q", c.replaces)
			}
		})
	}
}

// What cannot be changed in place is refused, and nothing is changed.
func TestNotInPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		patch string
		args  []string
		alter func(*configuredServers)
		says  string
	}{
		"a field of the control plane": {patch: "cluster:\n  apiServer:\n    extraArgs:\n      profiling: \"false\"\n",
			says: "cluster.apiServer.extraArgs.profiling"},
		"another server type": {patch: sysctls, args: []string{"SERVER_TYPE=cx43"}, says: "server type"},
		"another Kubernetes": {patch: sysctls, args: []string{"KUBERNETES_VERSION=v1.35.9"},
			says: "not in place: kubernetes-1-35-9"},
		"paused": {patch: sysctls, says: "is paused", alter: func(c *configuredServers) {
			c.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				object{"metadata": object{"annotations": object{capi.PausedAnnotation: "true"}}})
		}},
		"being replaced": {patch: sysctls, says: "are being replaced", alter: func(c *configuredServers) {
			c.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				object{"status": object{"conditions": []any{
					object{"type": "MachinesSpecUpToDate", "status": "False"}}}})
		}},
		"a Secret of other content": {patch: sysctls, says: "the machine configuration in Secret default/" +
			"k8s-control-plane-0-bootstrap-data: machine.sysctls.vm.max_map_count differs",
			alter: func(c *configuredServers) {
				text := strings.Replace(c.running["k8s-control-plane-0"], "machine:\n",
					"machine:\n    sysctls:\n        vm.max_map_count: \"7\"\n", 1)
				c.Management.Change("v1", "Secret", config.DefaultNamespace, "k8s-control-plane-0-bootstrap-data",
					object{"data": object{capi.BootstrapDataKey: base64.StdEncoding.EncodeToString([]byte(text))}})
			}},
		"no Secret": {patch: sysctls, says: "server k8s-control-plane-0: read Secret default/",
			alter: func(c *configuredServers) {
				c.Management.Remove("v1", "Secret", config.DefaultNamespace, "k8s-control-plane-0-bootstrap-data")
			}},
		"talosctl": {patch: sysctls, says: "server k8s-control-plane-1: its machine configuration was changed by " +
			"other means in machine.sysctls.vm.max_map_count", alter: func(c *configuredServers) {
			c.running["k8s-control-plane-1"] = strings.Replace(c.running["k8s-control-plane-1"], "machine:\n",
				"machine:\n    sysctls:\n        vm.max_map_count: \"7\"\n", 1)
		}},
		"Talos refuses": {patch: sysctls, says: "server k8s-control-plane-2: ", alter: func(c *configuredServers) {
			c.refuses = func(server string) error {
				if server == "k8s-control-plane-2" {
					return status.Error(codes.InvalidArgument, "no such time server")
				}
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConfiguredServers(t)
			if tc.alter != nil {
				tc.alter(c)
			}
			c.patch(t, tc.patch)
			cfg := c.configured(t, tc.args...)
			_, err := c.upgrade(t, cfg, c.tools, Options{Configuration: true, InPlace: true,
				Requested: requestedOf(cfg, "SERVER_TYPE")})
			if refused, is := errors.AsType[*RefusedError](err); !is || !strings.Contains(refused.Error(), tc.says) {
				t.Errorf("%v does not say %q", err, tc.says)
			}
			if len(c.told) > 0 || halfTaken(c.controlPlane()) {
				t.Errorf("changed were %q", c.told)
			}
		})
	}
}
