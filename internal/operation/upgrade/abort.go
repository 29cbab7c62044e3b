package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// ErrNotReplacing is the RefusedError of an abort where no server of the control plane is being replaced.
var ErrNotReplacing error = &RefusedError{[]string{"no server of the control plane is being replaced"}}

// ExamineAbort finds out what an abort does. Its error is ErrNotReplacing, or another RefusedError where a server from
// before was deleted.
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

// RunAbort undoes the replacement, as ExamineAbort says, and waits until the control plane is whole without the new
// server. One that was cut off is run again.
func RunAbort(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) error {
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
		return plane.putBack(ctx, say)
	})
	if err != nil {
		return err
	}
	return plane.roll(ctx, say, "the control plane to be whole as it was")
}

// examineAbort also gives the TalosControlPlane, with a RefusedError, too.
func (c *controlPlane) examineAbort(ctx context.Context) (a Abort, tcp *unstructured.Unstructured, err error) {
	if tcp, err = c.talosControlPlane(ctx); err != nil {
		return a, nil, err
	}
	all, err := capi.List(ctx, c.manager, c.cfg.Namespace, capi.MachineKind, c.cfg.ClusterName)
	if err != nil {
		return a, nil, err
	}
	all = capi.ControlPlaneMachines(all)
	from, err := c.madeFrom(ctx, all)
	if err != nil {
		return a, nil, err
	}
	is, replicas := fromControlPlane(tcp), int(capi.Number(tcp, "spec", "replicas"))
	differs := func(m unstructured.Unstructured) bool { return !from[m.GetName()].same(is) }
	if !held(tcp) && !slices.ContainsFunc(all, differs) {
		return a, tcp, ErrNotReplacing
	}
	kept := slices.DeleteFunc(slices.Clone(all), func(m unstructured.Unstructured) bool {
		return m.GetDeletionTimestamp() != nil
	})
	if last := newest(kept); len(kept) > replicas {
		others := slices.DeleteFunc(slices.Clone(kept), func(m unstructured.Unstructured) bool {
			return m.GetUID() == last.GetUID() && m.GetName() == last.GetName()
		})
		if !slices.ContainsFunc(others, func(m unstructured.Unstructured) bool {
			return from[m.GetName()].same(from[last.GetName()])
		}) {
			a.Removes, kept = capi.ServerOf(last), others
		}
	}
	a.Keeps = capi.ServersOf(kept)
	if len(kept) < replicas {
		return a, tcp, &RefusedError{[]string{fmt.Sprintf("servers from before were deleted already: %s of %d are "+
			"left; complete the upgrade, or configure what was before and apply that", orNone(a.Keeps), replicas)}}
	}
	if a.before, err = commonOrigin(kept, from); err != nil {
		return a, tcp, err
	}
	a.Back = is.changes(a.before)
	_, err = capi.Get(ctx, c.manager, c.cfg.Namespace, capi.MachineTemplateKind, a.before.Template)
	if kube.Absent(err) {
		err = &RefusedError{[]string{fmt.Sprintf("HCloudMachineTemplate %s, which the servers were made from, is gone",
			a.before.Template)}}
	}
	return a, tcp, err
}

// commonOrigin is what all Machines were made from.
func commonOrigin(machines []unstructured.Unstructured, from map[string]madeFrom) (common madeFrom, err error) {
	for i, m := range machines {
		made := from[m.GetName()]
		if i == 0 {
			common = made
		}
		switch {
		case made.Template == "" || made.Config == nil:
			return common, &RefusedError{[]string{fmt.Sprintf("it is not known which template and TalosConfig server "+
				"%s was made from", capi.ServerOf(&m))}}
		case !made.same(common):
			return common, &RefusedError{[]string{fmt.Sprintf("servers %s and %s were not made from the same (%s), so "+
				"that it is not the first server that is being replaced: complete the upgrade, or configure what was "+
				"before and apply that", capi.ServerOf(&machines[0]), capi.ServerOf(&m),
				strings.Join(common.changes(made), ", "))}}
		}
	}
	return common, nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// putBack has the TalosControlPlane make such servers as there were, once the control plane provider is held and has
// ended what it was doing. missing says that it may not have.
func (c *controlPlane) putBack(ctx context.Context, say flow.Say) (missing string, err error) {
	a, tcp, err := c.examineAbort(ctx)
	if err != nil {
		_, refused := errors.AsType[*RefusedError](err)
		if refused && held(tcp) {
			err = fmt.Errorf("%w; no further server is replaced: run the upgrade again, or remove the annotations %s "+
				"and %s of %s", err, capi.PausedAnnotation, capi.UpgradeHeldAnnotation, kube.Describe(tcp))
		}
		return "", err
	}
	if len(a.Back) == 0 {
		return "", nil
	}
	if _, err := c.hold(ctx, tcp, true); err != nil {
		return "", err
	}
	if tcp, err = c.talosControlPlane(ctx); err != nil {
		return "", err
	}
	if missing := settling(tcp); missing != "" {
		return missing, nil
	}
	changed := withSpec(tcp, a.before.Config)
	if err := unstructured.SetNestedField(changed.Object, a.before.Version, "spec", "version"); err != nil {
		return "", err
	}
	if err := unstructured.SetNestedField(changed.Object, a.before.Template, "spec", "infrastructureTemplate",
		"name"); err != nil {
		return "", err
	}
	say("%s: %s", kube.Describe(tcp), strings.Join(a.Back, ", "))
	patch := client.MergeFromWithOptions(tcp, client.MergeFromWithOptimisticLock{})
	if err := c.manager.Patch(ctx, changed, patch); err != nil {
		return "", fmt.Errorf("change %s: %w", kube.Describe(tcp), err)
	}
	return "", nil
}

// reconcilesWithin is how long the control plane provider may go on with what it was doing when it was held. It asks
// each server for its boot sequence and etcd, with time-outs of 5 to 15 seconds (CACPPT v0.5.13, controllers/health.go
// and etcd.go).
var reconcilesWithin = time.Minute

// settling says that the control plane provider was held a moment ago, and may not have ended what it was doing; empty:
// it has.
func settling(tcp *unstructured.Unstructured) string {
	since, err := time.Parse(time.RFC3339, tcp.GetAnnotations()[capi.UpgradeHeldAnnotation])
	if err != nil || time.Since(since) > reconcilesWithin {
		return ""
	}
	return "the control plane provider was held a moment ago, and may be replacing a server until " +
		since.Add(reconcilesWithin).Format(time.TimeOnly)
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

// unwanted is a new server that the control plane is not to have any more, where the control plane provider would not
// delete that one: it deletes the oldest of those that differ, and none before all have booted. nil: there is none.
// Only a rollout that an upgrade holds has one.
func (v view) unwanted() *unstructured.Unstructured {
	m := newest(v.machines)
	if m == nil || !v.held || len(v.machines) <= v.replicas || !slices.Contains(v.outdated, capi.ServerOf(m)) {
		return nil
	}
	if len(v.outdated) == 1 && !slices.Contains(v.unready, capi.ServerOf(m)) {
		return nil
	}
	return m
}

// remove deletes a Machine without which etcd keeps its quorum, while the control plane provider is held and does
// nothing. missing says that it may still do something.
func (c *controlPlane) remove(ctx context.Context, say flow.Say, tcp, machine *unstructured.Unstructured) (
	missing string, err error) {
	if missing := settling(tcp); missing != "" {
		return missing, nil
	}
	name := capi.ServerOf(machine)
	etcd, err := etcdview.Ask(ctx, c.cfg, c.tools, c.manager, "")
	if err != nil {
		return "", err
	}
	if needs := etcd.Needs(name); needs != "" {
		return "", fmt.Errorf("server %s is to be deleted: %s", name, needs)
	}
	say("deleting %s, which the control plane is not to have any more", kube.Describe(machine))
	return "", capi.DeleteMachine(ctx, c.manager, machine)
}
