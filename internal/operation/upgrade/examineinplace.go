package upgrade

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	talosapi "github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/platform"
)

// fieldsOf are the names of the fields that change on any of the servers.
func fieldsOf(all []serverInPlace) (names []string) {
	for _, s := range all {
		for _, f := range s.fields {
			if name := f.String(); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// notInPlace says which fields Talos does not bring to a running server.
func notInPlace(all []serverInPlace) (refused []string) {
	for _, s := range all {
		for _, f := range s.fields {
			text := f.String() + " does not reach a running server without a reboot, or restarts an API server or etcd"
			if !f.InPlace() && !slices.Contains(refused, text) {
				refused = append(refused, text)
			}
		}
	}
	return refused
}

// inPlace turns the replacement of the control plane's servers, where it is among the consequences, into a change of
// their machine configuration, which is also one where an earlier one was cut off. refused says why that cannot be.
// Each server's Talos is asked whether it would take its new configuration.
func (c *controlPlane) inPlace(ctx context.Context, becomes configured, found []changes.Consequence) (
	out []changes.Consequence, refused []string, err error) {
	tcp := becomes.controlPlane(c.cfg.ControlPlaneName())
	replaces := func(one changes.Consequence) bool {
		return one.Effect == changes.EffectReplaces && one.Object.Kind == tcp.GetKind()
	}
	at := slices.IndexFunc(found, replaces)
	if at >= 0 && becomes.template != becomes.is {
		return nil, []string{found[at].Summary()}, nil
	}
	wanted, err := c.wantedSpec(ctx, becomes)
	if err != nil {
		return nil, nil, err
	}
	pending, err := c.pendingInPlace(ctx)
	if err != nil || at < 0 && pending == "" {
		return found, nil, err
	}
	live, err := c.talosControlPlane(ctx)
	if err != nil {
		return nil, nil, err
	}
	if rolling := capi.FalseCondition(live, "MachinesSpecUpToDate"); pending == "" && rolling != (capi.Condition{}) {
		return nil, []string{"the control plane's servers are being replaced"}, nil
	}
	servers, refused, err := c.serversInPlace(ctx, withSpec(tcp, wanted))
	if err != nil {
		return nil, nil, err
	}
	if _, paused := live.GetAnnotations()[capi.PausedAnnotation]; paused {
		refused = append(refused, kube.Describe(live)+" is paused (annotation "+capi.PausedAnnotation+")")
	}
	if len(refused) == 0 {
		refused, err = c.refusedByTalos(ctx, servers)
	}
	if err != nil || len(refused) > 0 {
		return nil, refused, err
	}
	if pending == "" && len(fieldsOf(servers)) == 0 { // a talosVersion alone
		return slices.DeleteFunc(found, replaces), nil, nil
	}
	change := changes.Consequence{Effect: changes.EffectChanges, Why: fieldsOf(servers),
		Object:  platform.Object{APIVersion: tcp.GetAPIVersion(), Kind: tcp.GetKind(), Name: tcp.GetName()},
		Servers: capi.ServersOf(machinesOf(servers))}
	return append([]changes.Consequence{change}, slices.DeleteFunc(found, replaces)...), nil, nil
}

func machinesOf(servers []serverInPlace) (machines []unstructured.Unstructured) {
	for _, s := range servers {
		machines = append(machines, *s.machine)
	}
	return machines
}

// refusedByTalos says which servers have another value in a field that changes, or would not take the change.
func (c *controlPlane) refusedByTalos(ctx context.Context, servers []serverInPlace) (refused []string, err error) {
	for _, s := range servers {
		t, route, err := c.talosOf(ctx, s.name())
		if err != nil {
			return nil, err
		}
		live, err := t.MachineConfig(ctx, route)
		if err != nil {
			return nil, err
		}
		text, others, err := s.changed(live)
		if err == nil && len(others) == 0 {
			_, _, err = c.bootstrapData(ctx, s)
		}
		if kube.Unwell(err) { // no answer is no refusal
			return nil, err
		}
		if err == nil && text != nil {
			if err = t.CheckMachineConfig(ctx, route, text); !talosapi.ConfigRefused(err) {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		if len(others) > 0 {
			err = othersChanged(others)
		}
		if err != nil {
			refused = append(refused, fmt.Sprintf("server %s: %v", s.name(), err))
		}
	}
	return refused, nil
}

// refuseHalfInPlace refuses what replaces servers while a change in place was cut off: servers may run with what no
// TalosConfig of theirs has.
func (c *controlPlane) refuseHalfInPlace(ctx context.Context) error {
	pending, err := c.pendingInPlace(ctx)
	if err != nil || pending == "" {
		return err
	}
	return &RefusedError{[]string{fmt.Sprintf("%s: run %s first, with the same configuration to complete the change, "+
		"or with the one before to undo it", pending, c.tools.Command("apply", "--in-place"))}}
}

// pendingInPlace says that a change in place was cut off; empty: none was.
func (c *controlPlane) pendingInPlace(ctx context.Context) (string, error) {
	tcp, err := c.talosControlPlane(ctx)
	if err != nil {
		return "", err
	}
	servers, err := c.configsOfServers(ctx)
	if err != nil {
		return "", err
	}
	if halfTaken(tcp) || slices.ContainsFunc(servers, func(s serverInPlace) bool { return len(s.begun) > 0 }) {
		return "a change of the machine configuration in place has not ended", nil
	}
	return "", nil
}
