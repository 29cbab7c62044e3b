package upgrade

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinery "github.com/siderolabs/talos/pkg/machinery/config"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	talosapi "github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/machineconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
)

// serverInPlace is a control plane server whose machine configuration is changed without replacing it.
type serverInPlace struct {
	machine, config *unstructured.Unstructured // its Machine, and the TalosConfig that this refers to
	// begun are other TalosConfigs of the Machine: of a change in place that was cut off, with which the server may
	// run.
	begun []*unstructured.Unstructured
	// from are the fields that change, for each configuration that the server may run with.
	from [][]machineconfig.Field
	// fields are all of them.
	fields []machineconfig.Field
}

// changed is a machine configuration with the change; nil: it has it. others are fields in which it is none of those
// that the server may run with: they were changed by other means.
func (s serverInPlace) changed(live machinery.Provider) (text []byte, others []string, err error) {
	has := false
	for _, fields := range s.from {
		made, differ, err := machineconfig.WithFields(live, fields)
		switch {
		case err != nil || made != nil:
			return made, nil, err
		case len(differ) == 0: // it is this one, which has nothing to change, or has the change
			has = true
		}
		others = append(others, differ...)
	}
	if has {
		return nil, nil, nil
	}
	return nil, others, nil
}

func (s serverInPlace) name() string { return capi.ServerOf(s.machine) }

// controlPlaneSpecOf is the TalosConfigSpec of a TalosControlPlane.
func controlPlaneSpecOf(tcp *unstructured.Unstructured) any {
	spec, _, _ := unstructured.NestedFieldNoCopy(tcp.Object, controlPlaneSpec...)
	return spec
}

var controlPlaneSpec = []string{"spec", "controlPlaneConfig", "controlplane"}

// serversInPlace are the control plane's servers, with the fields in which what a TalosControlPlane makes of them
// differs from what each may run with. refused says why the difference cannot be brought to a server.
func (c *controlPlane) serversInPlace(ctx context.Context, tcp *unstructured.Unstructured) (all []serverInPlace,
	refused []string, err error) {
	is, err := checks.MachineConfig(c.cfg, tcp)
	if err != nil {
		return nil, nil, err
	}
	if all, err = c.configsOfServers(ctx); err != nil {
		return nil, nil, err
	}
	for i := range all {
		s := &all[i]
		if s.config == nil {
			return nil, nil, fmt.Errorf("%s refers to no TalosConfig that exists", kube.Describe(s.machine))
		}
		for _, one := range append([]*unstructured.Unstructured{s.config}, s.begun...) {
			if !samePatchesAside(one.Object["spec"], controlPlaneSpecOf(tcp)) {
				refused = append(refused, fmt.Sprintf("more than strategicPatches differs between %s and %s",
					kube.Describe(one), kube.Describe(tcp)))
			}
			was, err := checks.MachineConfig(c.cfg, withSpec(tcp, one.Object["spec"]))
			if err != nil {
				return nil, nil, err
			}
			fields, err := machineconfig.Differences(was, is)
			if err != nil {
				return nil, nil, err
			}
			s.from, s.fields = append(s.from, fields), append(s.fields, fields...)
		}
	}
	return all, append(refused, notInPlace(all)...), nil
}

// configsOfServers are the control plane's servers with their TalosConfigs.
func (c *controlPlane) configsOfServers(ctx context.Context) (all []serverInPlace, err error) {
	machines, err := capi.List(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, c.cfg.ClusterName)
	if err != nil {
		return nil, err
	}
	configs := capi.ListOf(capi.TalosConfigKind)
	if err := c.manager.List(ctx, configs, client.InNamespace(c.cfg.Namespace)); err != nil {
		return nil, fmt.Errorf("list the TalosConfigs: %w", err)
	}
	for _, m := range capi.ControlPlaneMachines(machines) {
		if m.GetDeletionTimestamp() != nil {
			continue
		}
		s := serverInPlace{machine: &m}
		for i := range configs.Items {
			switch one := &configs.Items[i]; {
			case one.GetName() == capi.Text(&m, configRef...):
				s.config = one
			case ownedBy(one, &m):
				s.begun = append(s.begun, one)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func ownedBy(o, owner *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == owner.GetUID()
	})
}

// samePatchesAside tells whether two TalosConfigSpecs differ in their patches alone.
func samePatchesAside(a, b any) bool {
	without := func(spec any) map[string]any {
		fields, _ := spec.(map[string]any)
		out := maps.Clone(fields)
		delete(out, "strategicPatches")
		return out
	}
	return jsonEqual(without(a), without(b))
}

// wantedSpec is the TalosConfigSpec that the control plane's servers get. A talosVersion of the same minor version,
// which makes the same machine configuration, stays: after an upgrade of Talos in place it is the one of before.
func (c *controlPlane) wantedSpec(ctx context.Context, becomes configured) (any, error) {
	live, err := c.talosControlPlane(ctx)
	if err != nil {
		return nil, err
	}
	path := append(slices.Clone(controlPlaneSpec), "talosVersion")
	tcp := becomes.controlPlane(c.cfg.ControlPlaneName())
	if has := capi.Text(live, path...); has != "" && config.SameMinor(has, capi.Text(tcp, path...)) {
		if err := unstructured.SetNestedField(tcp.Object, has, path...); err != nil {
			return nil, err
		}
	}
	return controlPlaneSpecOf(tcp), nil
}

// controlPlane is the TalosControlPlane as it becomes.
func (c configured) controlPlane(name string) *unstructured.Unstructured {
	for _, o := range c.all {
		if o.GroupVersionKind() == capi.TalosControlPlaneKind && o.GetName() == name {
			return o
		}
	}
	return nil
}

func othersChanged(fields []string) error {
	return fmt.Errorf("its machine configuration was changed by other means in %s: set the value that the cluster's "+
		"configuration had, or the one that it has now (talosctl edit machineconfig)", strings.Join(fields, ", "))
}

// talosOf is the Talos of a control plane server, and the route by which it answers.
func (c *controlPlane) talosOf(ctx context.Context, name string) (talosapi.Client, talosapi.Route, error) {
	t, nodes, err := etcdview.AskControlPlane(ctx, c.cfg, c.tools)
	if err != nil {
		return nil, talosapi.Route{}, err
	}
	i := slices.IndexFunc(nodes, func(n etcdview.Node) bool { return n.Server == name })
	switch {
	case i < 0:
		return nil, talosapi.Route{}, fmt.Errorf("server %s is not at Hetzner", name)
	case nodes[i].Silent():
		return nil, talosapi.Route{}, fmt.Errorf("the Talos of server %s does not answer: %w", name, nodes[i].Err)
	}
	return t, nodes[i].Route, nil
}

// inPlaceConfigurationStep is a configurationStep that changes the machine configuration of the control plane's servers
// in place.
type inPlaceConfigurationStep struct{ configurationStep }

func (s inPlaceConfigurationStep) add(g *flow.Graph) *flow.Step[Servers] {
	task := s.task()
	task.Doc = "the cluster's own objects are as configured, and every control plane server runs as they say"
	task.Run, task.Verify = flow.Do(s.run), s.verify
	task.Spec = map[string][]string{"in place": s.summaries}
	task.Deadline += s.cfg.ProvidersTimeout.D() + time.Duration(2*s.replicas+2)*s.cfg.LoadBalancerTimeout.D()
	task.Waits = []flow.Wait{
		{For: "one server to run with its machine configuration (CONTROL_PLANE_TIMEOUT and NODES_TIMEOUT)",
			Within: s.serverTakes()},
		{For: "the restart of the control plane provider (PROVIDERS_TIMEOUT)", Within: s.cfg.ProvidersTimeout.D()},
		wait.Webhooks(s.cfg),
	}
	return flow.Add(g, s.ofFirst(task))
}

// run changes one server after another, and then what Cluster API knows of them. Until all servers are changed, no
// object is.
func (s inPlaceConfigurationStep) run(ctx context.Context, say flow.Say) (Servers, error) {
	c, _, err := s.begin(ctx, say)
	if err != nil {
		return Servers{}, err
	}
	plane := newControlPlane(s.environment, c)
	values, _ := s.requestedValues(s.requested)
	values, image, err := plane.resolved(ctx, values, "")
	if err != nil {
		return Servers{}, err
	}
	becomes, err := plane.configure(ctx, values, image, s.other)
	if err != nil {
		return Servers{}, err
	}
	wanted, err := plane.wantedSpec(ctx, becomes)
	if err != nil {
		return Servers{}, err
	}
	servers, refused, err := plane.serversInPlace(ctx, becomes.controlPlane(s.cfg.ControlPlaneName()))
	if err == nil && len(refused) > 0 {
		err = &RefusedError{refused}
	}
	if err != nil {
		return Servers{}, err
	}
	for i := range servers { // all, before a server is changed: a later run finds what servers may run with
		err := apply.Change(ctx, s.cfg, say, "the new TalosConfig of "+kube.Describe(servers[i].machine),
			func(ctx context.Context) (string, error) {
				return "", plane.createConfig(ctx, say, &servers[i], wanted)
			})
		if err != nil {
			return Servers{}, err
		}
	}
	for i, one := range servers {
		if len(one.fields) == 0 {
			continue
		}
		if err := plane.changeServer(ctx, say, one); err != nil {
			return Servers{}, err
		}
		say("%d of %d servers run with their new machine configuration", i+1, len(servers))
		if s.first {
			return Servers{}, nil
		}
	}
	if err := plane.takeConfiguration(ctx, say, wanted); err != nil {
		return Servers{}, err
	}
	if err := s.changeObjects(ctx, say, plane, ""); err != nil {
		return Servers{}, err
	}
	return s.complete(ctx, say, plane, "the control plane to be whole with its new configuration")
}

// restartsWithin is how long a kubelet may take to restart with another configuration. A change that makes the same
// configuration of the kubelet restarts none.
const restartsWithin = time.Minute

// changeServer has a server run with its new machine configuration, once the control plane is whole, and waits until it
// is so again.
func (c *controlPlane) changeServer(ctx context.Context, say flow.Say, s serverInPlace) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var changed, started time.Time // when the server was changed; when its kubelet had started before
	restarts := slices.ContainsFunc(s.fields,
		func(f machineconfig.Field) bool { return f.Within(machineconfig.KubeletField) })
	w := wait.Wait{What: fmt.Sprintf("server %s to run with its new machine configuration", s.name()),
		Within: c.serverTakes(), Changes: c.reader.Changes(watching),
		Explain: c.observer.Obstacles(c.manager, situation.WatchedOf(c.cfg))}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		machine, err := capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, s.machine.GetName())
		if kube.Absent(err) || err == nil && machine.GetDeletionTimestamp() != nil {
			return "", nil // another one takes its place, and is looked at when all others are changed
		}
		if err != nil {
			return "", err
		}
		tcp, err := c.talosControlPlane(ctx)
		if err != nil {
			return "", err
		}
		v, err := c.look(ctx, tcp)
		if err != nil {
			return "", err
		}
		t, route, err := c.talosOf(ctx, s.name())
		if err != nil {
			return "", err
		}
		live, err := t.MachineConfig(ctx, route)
		if err != nil {
			return "", err
		}
		text, others, err := s.changed(live)
		if err == nil && len(others) > 0 {
			err = othersChanged(others)
		}
		if err != nil {
			return "", wait.Final(fmt.Errorf("server %s: %w", s.name(), err))
		}
		kubelet, err := t.Service(ctx, route, "kubelet")
		if err != nil {
			return "", err
		}
		switch missing := wait.Sentences(v.lacks...); {
		case text == nil && restarts && !kubelet.Started.After(started) && time.Since(changed) < restartsWithin:
			return wait.Sentences("its kubelet has not restarted with it yet", missing), nil
		case text == nil && !kubelet.Healthy:
			return wait.Sentences("its kubelet is not healthy", missing), nil
		case text == nil || missing != "":
			return missing, nil
		}
		say("server %s: %s", s.name(), strings.Join(fieldsOf([]serverInPlace{s}), ", "))
		changed, started = time.Now(), kubelet.Started
		if err := t.ApplyMachineConfig(ctx, route, text); err != nil {
			if talosapi.ConfigRefused(err) {
				err = wait.Final(err)
			}
			return "", err
		}
		return "it was changed a moment ago", nil
	})
}

func (s inPlaceConfigurationStep) verify(ctx context.Context, was Servers) flow.Verdict {
	c, err := s.open(ctx, silent)
	if err != nil {
		return flow.Unknown(err)
	}
	pending, err := newControlPlane(s.environment, c).pendingInPlace(ctx)
	switch {
	case err != nil:
		return kube.Verdict(err)
	case pending != "":
		return flow.Gone("%s", pending)
	}
	return s.configurationStep.verify(ctx, was)
}
