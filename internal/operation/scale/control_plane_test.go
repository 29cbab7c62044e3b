package scale

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/clustertest"
	"github.com/slipway-k8s/slipway/internal/planning/bootstrapped"
	"github.com/slipway-k8s/slipway/platform"
)

// provider plays the control plane provider: as many Machines, servers, nodes and members of etcd as are asked for.
type provider struct {
	*clustertest.Environment
	mu      sync.Mutex
	members []string
	learner string // the one of them that does not vote
	asked   []int  // numbers of servers that were asked for, in their order
	stuck   bool   // a change has no effect
	stopped string // address of a server whose etcd is stopped
	refuse  []refusal
}

// refusal answers a change of the TalosControlPlane in the API server's place.
type refusal struct {
	code    int
	message string
}

// fail answers the next change with the next refusal.
func (p *provider) fail(r *http.Request) (int, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "taloscontrolplanes/k8s-control-plane") ||
		len(p.refuse) == 0 {
		return 0, ""
	}
	next := p.refuse[0]
	p.refuse = p.refuse[1:]
	return next.code, next.message
}

func serverName(i int) string { return fmt.Sprintf("k8s-control-plane-%d", i) }

func newProvider(t *testing.T) (*provider, platform.Tools) {
	t.Helper()
	w := clustertest.New(t)
	p := &provider{Environment: w}
	w.Management.Fail = p.fail
	if _, err := bootstrapped.Run(t, w, w.Config(), flow.Memory(), "wait-nodes"); err != nil {
		t.Fatal(err)
	}
	clustertest.Define(w.Management, clustertest.ClusterAPIKinds())
	for i := range 3 {
		p.members = append(p.members, serverName(i))
	}
	w.Management.SetReact(p.react)
	tools := w.Tools()
	tools.Talos = func([]byte) (talos.Client, error) { return etcdOf{p: p}, nil }
	return p, tools
}

// etcdOf answers for the members that the provider has.
type etcdOf struct {
	clustertest.HealthyTalos
	p *provider
}

func (e etcdOf) Ask(ctx context.Context, r talos.Route) (talos.Node, error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if r.Endpoint == e.p.stopped {
		return talos.Node{Version: config.Defaults().TalosVersion, Etcd: "Failed"}, nil
	}
	return e.HealthyTalos.Ask(ctx, r)
}

func (e etcdOf) EtcdMembers(context.Context, talos.Route) (members []talos.EtcdMember, err error) {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	for _, name := range e.p.members {
		members = append(members, talos.EtcdMember{Name: name, Learner: name == e.p.learner})
	}
	return members, nil
}

func (p *provider) react(o *unstructured.Unstructured) {
	if o.GetKind() != "TalosControlPlane" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := replicasOf(o)
	if len(p.asked) == 0 || p.asked[len(p.asked)-1] != want {
		p.asked = append(p.asked, want)
	}
	if p.stuck {
		return
	}
	for len(p.members) < want {
		p.add(len(p.members))
	}
	for len(p.members) > want {
		name := p.members[len(p.members)-1]
		p.members = p.members[:len(p.members)-1]
		p.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, name)
		p.Workload.Remove("v1", "Node", "", name)
	}
	var servers []schema.Server
	for i := range p.members {
		servers = append(servers, schema.Server{ID: int64(100 + i), Name: serverName(i), Status: "running",
			Labels:     map[string]string{"caph-cluster-k8s": "owned"},
			PrivateNet: []schema.ServerPrivateNet{{IP: fmt.Sprintf("10.10.64.%d", 2+i)}}})
	}
	p.Hetzner.SetServers(servers...)
}

// replicasOf reads the number as a client's JSON has it.
func replicasOf(o *unstructured.Unstructured) int {
	value, _, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
	switch n := value.(type) {
	case int64:
		return int(n)
	case float64:
		return int(n)
	}
	panic(fmt.Sprintf("spec.replicas of %s is %v (%T)", o.GetName(), value, value))
}

func (p *provider) add(i int) {
	type object = clustertest.Map
	name, private := serverName(i), fmt.Sprintf("10.10.64.%d", 2+i)
	labels := object{capi.ClusterNameLabel: "k8s", capi.ControlPlaneLabel: ""}
	p.members = append(p.members, name)
	p.Management.Put(kubetest.Object(clustertest.CAPI, "Machine", config.DefaultNamespace, name, object{
		"metadata": object{"labels": labels}, "spec": object{"infrastructureRef": object{"name": name}},
		"status": object{"nodeRef": object{"name": name}, "addresses": []any{
			object{"type": "InternalIP", "address": private}, object{"type": "ExternalIP", "address": "127.0.1.9"}}},
	}))
	p.Workload.Put(kubetest.Object("v1", "Node", "", name, object{
		"metadata": object{"labels": object{capi.ControlPlaneRole: ""}},
		"spec":     object{"providerID": fmt.Sprintf("hcloud://%d", 100+i)},
		"status": object{"nodeInfo": object{"kubeletVersion": config.Defaults().KubernetesVersion},
			"conditions": []any{object{"type": "Ready", "status": "True"}},
			"addresses":  []any{object{"type": "InternalIP", "address": private}}},
	}))
}

func (p *provider) replicas() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// TestOneServerAtATime goes up and down again, and asks for one server more or less each time.
func TestOneServerAtATime(t *testing.T) {
	p, tools := newProvider(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Cluster API does not know a node yet, as in the first half minute of a cluster.
	p.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, serverName(1),
		clustertest.Map{"status": clustertest.Map{"nodeRef": nil}})
	scaler := NewControlPlane(p.Config(), tools)
	change, err := scaler.Examine(ctx, t.Logf, 5)
	if err != nil || change.From != 3 || change.To != 5 || change.ServerType != "cx33" || change.Monthly.Monthly == 0 {
		t.Fatalf("%+v, %v", change, err)
	}
	if says := change.String(); !strings.Contains(says,
		"adds 2 servers of type cx33 in nbg1 to the control plane, one after another: 3 → 5") {
		t.Error(says)
	}
	if asked := p.replicas(); len(asked) > 0 {
		t.Fatalf("looking asked for %v", asked)
	}
	p.Management.Change(clustertest.CAPI, "Machine", config.DefaultNamespace, serverName(1),
		clustertest.Map{"status": clustertest.Map{"nodeRef": clustertest.Map{"name": serverName(1)}}})
	steps, err := scaler.Run(ctx, t.Logf, 5)
	if err != nil || len(steps) != 2 || !slices.Equal(steps[1].Added, []string{serverName(4)}) {
		t.Fatalf("%+v, %v", steps, err)
	}
	if steps, err := scaler.Run(ctx, t.Logf, 5); err != nil || len(steps) > 0 {
		t.Errorf("a second time: %+v, %v", steps, err)
	}
	if steps, err := scaler.Run(ctx, t.Logf, 1); err != nil || len(steps) != 4 ||
		!slices.Equal(steps[0].Deleted, []string{serverName(4)}) {
		t.Errorf("down: %+v, %v", steps, err)
	}
	if asked := p.replicas(); !slices.Equal(asked, []int{4, 5, 4, 3, 2, 1}) {
		t.Errorf("it asked for %v", asked)
	}
	config, err := tools.Files.Read(platform.Talosconfig)
	if err != nil || len(config) == 0 {
		t.Errorf("the talosconfig: %v", err)
	}
}

// TestCutOff has a run that ended while the control plane was asked for 4 servers and had 3.
func TestCutOff(t *testing.T) {
	p, tools := newProvider(t)
	p.mu.Lock()
	p.stuck = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	scaler := NewControlPlane(p.Config(), tools)
	if steps, err := scaler.Run(ctx, t.Logf, 5); err == nil || len(steps) > 0 {
		t.Fatalf("%+v, %v", steps, err)
	}
	p.mu.Lock()
	p.stuck = false
	p.mu.Unlock()
	go p.react(p.Management.Get(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane"))
	again, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if steps, err := scaler.Run(again, t.Logf, 3); err != nil || len(steps) != 1 {
		t.Errorf("back: %+v, %v", steps, err)
	}
	if asked := p.replicas(); !slices.Equal(asked, []int{4, 3}) {
		t.Errorf("it asked for %v", asked)
	}
}

// age has the Machine of a server exist for longer than a run waits for one.
func (p *provider) age(i int) {
	machine := p.Management.Get(clustertest.CAPI, "Machine", config.DefaultNamespace, serverName(i))
	p.Management.Remove(clustertest.CAPI, "Machine", config.DefaultNamespace, serverName(i))
	machine.SetCreationTimestamp(metav1.NewTime(time.Now().Add(-24 * time.Hour)))
	p.Management.Put(machine)
}

// A run ended while the last server that it had asked for was joining: the next one waits for it, as that run did.
func TestAServerThatJoinsIsWaitedFor(t *testing.T) {
	type object = clustertest.Map
	last := serverName(2)
	ready := func(p *provider, status string) {
		p.Workload.Change("v1", "Node", "", last, object{"status": object{"conditions": []any{
			object{"type": "Ready", "status": status, "message": "it starts"}}}})
	}
	vote := func(p *provider, learner string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.learner = learner
	}
	for what, tt := range map[string]struct {
		joins, joined func(*provider)
		says          string
	}{
		"a learner": {func(p *provider) { vote(p, last) }, func(p *provider) { vote(p, "") },
			last + " does not vote in etcd yet"},
		"a node that starts": {func(p *provider) { ready(p, "False") }, func(p *provider) { ready(p, "True") },
			last + ": not Ready"},
		"a server without a node": {func(p *provider) { p.Workload.Remove("v1", "Node", "", last) },
			func(p *provider) {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.members = p.members[:2]
				p.add(2)
			}, "2 control plane nodes for 3 Machines"},
	} {
		t.Run(what, func(t *testing.T) {
			p, tools := newProvider(t)
			for i := range 2 {
				p.age(i)
			}
			tt.joins(p)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waited := sync.OnceFunc(func() { tt.joined(p) })
			steps, err := NewControlPlane(p.Config(), tools).Run(ctx, func(format string, args ...any) {
				if strings.Contains(fmt.Sprintf(format, args...), tt.says) {
					waited()
				}
				t.Logf(format, args...)
			}, 3)
			if err != nil || len(steps) > 0 {
				t.Errorf("%v, %v", steps, err)
			}
		})
	}
}

// TestAChangeThatIsRefusedInPassing has a controller that is faster, and a webhook that is away.
func TestAChangeThatIsRefusedInPassing(t *testing.T) {
	p, tools := newProvider(t)
	p.mu.Lock()
	p.refuse = []refusal{
		{http.StatusConflict, "the object has been modified; please apply your changes to the latest version and try again"},
		{http.StatusInternalServerError, `Internal error occurred: failed calling webhook "x": connection refused`},
	}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if steps, err := NewControlPlane(p.Config(), tools).Run(ctx, t.Logf, 5); err != nil || len(steps) != 2 {
		t.Errorf("%+v, %v", steps, err)
	}
	p.mu.Lock()
	if len(p.refuse) > 0 {
		t.Errorf("%d refusals were not met", len(p.refuse))
	}
	p.mu.Unlock()
	if asked := p.replicas(); !slices.Equal(asked, []int{4, 5}) {
		t.Errorf("it asked for %v", asked)
	}
}

// TestRefusals has what keeps a control plane from being scaled. Nothing is changed.
func TestRefusals(t *testing.T) {
	type object = clustertest.Map
	for what, tt := range map[string]struct {
		to     int
		change func(*provider)
		says   string
	}{
		"etcd was never started": {5, func(p *provider) {
			p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				object{"status": object{"initialized": false}})
		}, "etcd was not started yet"},
		"servers are being replaced": {5, func(p *provider) {
			p.Management.Change(clustertest.CACPPT, "TalosControlPlane", config.DefaultNamespace, "k8s-control-plane",
				object{"status": object{"conditions": []any{object{"type": "MachinesSpecUpToDate", "status": "False"}}}})
		}, "being replaced"},
		"a node is not Ready": {5, func(p *provider) {
			p.age(1)
			p.Workload.Change("v1", "Node", "", serverName(1), object{"status": object{"conditions": []any{
				object{"type": "Ready", "status": "False", "message": "kubelet stopped"}}}})
		}, "it is not whole: " + serverName(1)},
		"a member of etcd does not vote": {5, func(p *provider) {
			p.age(1)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.learner = serverName(1)
		}, "it is not whole: " + serverName(1) + " does not vote in etcd yet"},
		"a member of etcd has no server": {5, func(p *provider) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.members = append(p.members, "lost")
		}, "etcd still counts lost"},
		"a member of etcd is stopped": {5, func(p *provider) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.stopped = "127.0.1.1"
		}, serverName(1) + ": its etcd is stopped (Talos: Failed), and the control plane provider adds, removes and replaces no " +
			"server while it is; the other members have their quorum: bootstrap replace-machine " + serverName(1)},
		"no image": {5, func(p *provider) { p.Hetzner.SetImages() }, "another server could not be made"},
		"no eviction is allowed": {1, func(p *provider) {
			p.Workload.Put(kubetest.Object("policy/v1", "PodDisruptionBudget", "shop", "web", object{
				"spec":   object{"selector": object{"matchLabels": object{"app": "web"}}},
				"status": object{"expectedPods": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}}))
			p.Workload.Put(kubetest.Object("v1", "Pod", "shop", "web-1", object{
				"metadata": object{"labels": object{"app": "web"}}, "spec": object{"nodeName": serverName(2)},
				"status": object{"phase": "Running"}}))
		}, "PodDisruptionBudget shop/web"},
	} {
		t.Run(what, func(t *testing.T) {
			p, tools := newProvider(t)
			tt.change(p)
			writes := len(p.Management.Writes())
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			steps, err := NewControlPlane(p.Config(), tools).Run(ctx, t.Logf, tt.to)
			if _, ok := errors.AsType[*RefusedError](err); !ok || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %q", err, tt.says)
			}
			if wrote := p.Management.Writes()[writes:]; len(wrote) > 0 || len(steps) > 0 {
				t.Errorf("it wrote %v, %v", wrote, steps)
			}
		})
	}
}
