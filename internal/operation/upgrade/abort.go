package upgrade

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// Abort is how the replacement of the control plane's servers is undone, as long as none of them was deleted.
type Abort struct {
	// Back are the fields that the TalosControlPlane gets back, with both values; empty: it has them.
	Back []string `json:"back"`
	// Keeps are the servers from before.
	Keeps []string `json:"keeps"`
	// Removes is the new server; empty: there is none yet.
	Removes string `json:"removes,omitempty"`

	before madeFrom
}

// String says what it does.
func (a Abort) String() string {
	does := []string{"the control plane keeps " + strings.Join(a.Keeps, ", ")}
	if a.Removes != "" {
		does = append(does, "server "+a.Removes+" is deleted")
	}
	if len(a.Back) > 0 {
		does = append(does, "the TalosControlPlane gets back: "+strings.Join(a.Back, ", "))
	}
	return strings.Join(does, "; ")
}

// ExamineAbort finds out what an abort does. Its error is a RefusedError where no server is being replaced, or where
// one from before was deleted.
func ExamineAbort(ctx context.Context, cfg config.Config, tools platform.Tools) (a Abort, err error) {
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return a, err
	}
	c, err := e.open(ctx, silent)
	if err != nil {
		return a, err
	}
	a, _, err = newControlPlane(e, c).examineAbort(ctx)
	return a, err
}

// Run undoes the replacement, and waits until the control plane is whole without the new server. One that was cut off
// is examined and run again.
func (a Abort) Run(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) error {
	e, err := newEnvironment(cfg, tools)
	if err != nil {
		return err
	}
	c, err := e.open(ctx, say)
	if err != nil {
		return err
	}
	plane := newControlPlane(e, c)
	err = apply.Change(ctx, cfg, say, "the TalosControlPlane as it was", func(ctx context.Context) (string, error) {
		return "", plane.putBack(ctx, say)
	})
	if err != nil {
		return err
	}
	return plane.roll(ctx, say, "the control plane to be whole as it was")
}

// examineAbort also gives the TalosControlPlane.
func (c *controlPlane) examineAbort(ctx context.Context) (a Abort, tcp *unstructured.Unstructured, err error) {
	if tcp, err = c.talosControlPlane(ctx); err != nil {
		return a, nil, err
	}
	machines, err := capi.List(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, c.cfg.ClusterName)
	if err != nil {
		return a, nil, err
	}
	machines = slices.DeleteFunc(capi.ControlPlaneMachines(machines), func(m unstructured.Unstructured) bool {
		return m.GetDeletionTimestamp() != nil
	})
	from, err := c.madeFrom(ctx, machines)
	if err != nil {
		return a, nil, err
	}
	is, replicas := fromControlPlane(tcp), int(capi.Number(tcp, "spec", "replicas"))
	last := newest(machines)
	var others []unstructured.Unstructured // all but a new server
	for i := range machines {
		isNew := last == &machines[i] && (len(machines) > replicas || from[last.GetName()].same(is))
		if isNew {
			a.Removes = capi.ServerOf(last)
			continue
		}
		others = append(others, machines[i])
	}
	differ := func(m unstructured.Unstructured) bool { return !from[m.GetName()].same(is) }
	if !slices.ContainsFunc(machines, differ) {
		return a, nil, &RefusedError{[]string{"no server of the control plane is being replaced"}}
	}
	a.Keeps = capi.ServersOf(others)
	if len(others) < replicas {
		return a, nil, &RefusedError{[]string{fmt.Sprintf("servers from before were deleted already: %s of %d are left; "+
			"complete the upgrade, or configure what was before and apply that", orNone(a.Keeps), replicas)}}
	}
	for _, m := range others {
		made := from[m.GetName()]
		if made.Template == "" || made.Config == nil {
			return a, nil, &RefusedError{[]string{fmt.Sprintf("it is not known which template and TalosConfig server %s "+
				"was made from", capi.ServerOf(&m))}}
		}
		if a.before.Version == "" {
			a.before = made
		}
		if !made.same(a.before) {
			return a, nil, &RefusedError{[]string{fmt.Sprintf("servers %s and %s were not made from the same version, "+
				"template and configuration: it is not the first server that is being replaced; complete the upgrade, or "+
				"configure what was before and apply that", a.Keeps[0], capi.ServerOf(&m))}}
		}
	}
	a.Back = is.changes(a.before)
	_, err = capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineTemplateKind, a.before.Template)
	if kube.Absent(err) {
		err = &RefusedError{[]string{fmt.Sprintf("HCloudMachineTemplate %s, which the servers were made from, is gone",
			a.before.Template)}}
	}
	return a, tcp, err
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// putBack has the TalosControlPlane make such servers as there were. The control plane provider replaces none
// meanwhile.
func (c *controlPlane) putBack(ctx context.Context, say flow.Say) error {
	_, tcp, err := c.examineAbort(ctx)
	if err != nil {
		return err
	}
	if _, err := c.hold(ctx, tcp, true); err != nil {
		return err
	}
	a, tcp, err := c.examineAbort(ctx) // as it is with the provider held
	if err != nil || len(a.Back) == 0 {
		return err
	}
	changed := withSpec(tcp, a.before.Config)
	if err := unstructured.SetNestedField(changed.Object, a.before.Version, "spec", "version"); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(changed.Object, a.before.Template, "spec", "infrastructureTemplate",
		"name"); err != nil {
		return err
	}
	say("%s: %s", kube.Describe(tcp), strings.Join(a.Back, ", "))
	patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
	if err := c.manager.Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("change %s: %w", kube.Describe(tcp), err)
	}
	return nil
}

// newest is the Machine that was created last; nil: there are none.
func newest(machines []unstructured.Unstructured) (m *unstructured.Unstructured) {
	for i := range machines {
		created := machines[i].GetCreationTimestamp()
		if m == nil || m.GetCreationTimestamp().Time.Before(created.Time) {
			m = &machines[i]
		}
	}
	return m
}

// unwanted is a new server that the control plane is not to have any more, and that the control plane provider does not
// delete, because it waits until it is Ready; nil: there is none.
func (v view) unwanted() *unstructured.Unstructured {
	m := newest(v.machines)
	if m == nil || len(v.machines) <= v.replicas || !slices.Contains(v.outdated, capi.ServerOf(m)) ||
		!slices.Contains(v.unready, capi.ServerOf(m)) {
		return nil
	}
	return m
}

// remove deletes a Machine without which etcd keeps its quorum. tcp is the TalosControlPlane, which the provider has to
// have seen: else it may be deleting another one.
func (c *controlPlane) remove(ctx context.Context, say flow.Say, tcp, machine *unstructured.Unstructured) error {
	if capi.Lagging(tcp) {
		return nil
	}
	name := capi.ServerOf(machine)
	etcd, err := etcdview.Ask(ctx, c.cfg, c.tools, c.manager, "")
	if err != nil {
		return err
	}
	if needs := etcd.Needs(name); needs != "" {
		return fmt.Errorf("server %s is to be deleted: %s", name, needs)
	}
	say("deleting %s, whose server never became a Ready node", kube.Describe(machine))
	return capi.DeleteMachine(ctx, c.manager, machine)
}
