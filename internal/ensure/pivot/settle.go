package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
)

// awaitSettled removes what a dead move left at the source, and waits until the cluster's own controllers have looked
// at every object once and found it well, with the servers that it had.
func (p *pivot) awaitSettled(ctx context.Context) (Result, error) {
	if p.source != nil {
		if err := p.sweepSource(ctx); err != nil {
			return Result{}, err
		}
	}
	state, err := p.copy.State(p.cfg.ClusterName)
	if err != nil {
		return Result{}, err
	}
	uid, servers, err := AwaitReconciled(ctx, p.cfg, p.tools, p.observer, p.say, p.target, p.cfg.NodesTimeout.D(),
		func(servers []int64) error {
			return p.sameServers(&state, servers)
		})
	if err != nil {
		return Result{}, err
	}
	out := Result{Cluster: uid, Servers: servers}
	if err := p.copy.RemoveSecrets(); err != nil {
		return Result{}, fmt.Errorf("remove the Secrets from the copy of the pivot: %w", err)
	}
	state.Phase, state.Cluster, state.Servers, state.Changed = records.Settled, p.cfg.ClusterName, out.Servers, nil
	return out, p.copy.SetState(state)
}

// sameServers is an error where the servers are not those from before the move. It is returned once
// before --yes can agree to it: an operator who gives --yes with every run has not looked at these servers.
func (p *pivot) sameServers(state *records.PivotState, servers []int64) error {
	if state.Servers == nil || slices.Equal(servers, state.Servers) {
		return nil
	}
	if p.tools.Consent && state.Changed != nil && slices.Equal(servers, state.Changed) {
		p.say("as agreed, the servers are %v, and were %v before the pivot", servers, state.Servers)
		state.Servers, state.Changed = servers, nil
		return p.copy.SetState(*state)
	}
	was := state.Servers
	state.Changed = servers
	if err := p.copy.SetState(*state); err != nil {
		return err
	}
	return fmt.Errorf("the servers changed during the pivot: %v before, %v now: see which Machine they belong to "+
		"(spec.providerID of the Machines in cluster %s); where all of them are its own, as after a replace-machine, agree "+
		"with pivot --yes", was, servers, p.cfg.ClusterName)
}

// sweepSource removes Secrets that a move left at the source when it ended in its last steps: those without an owner
// are deleted together with the Cluster object. Anything else that stayed is not expected, and left to the operator.
func (p *pivot) sweepSource(ctx context.Context) error {
	copied, err := p.copy.All()
	if err != nil {
		return err
	}
	var stayed []string
	for _, o := range copied {
		is, err := apply.ReadCopied(ctx, p.source, o)
		if err != nil {
			return err
		}
		switch {
		case is == nil:
		case is.GetKind() == "Secret" || is.GetKind() == "ConfigMap":
			p.say("removing %s, which stayed in the management cluster", capi.ObjectKeyOf(o))
			if err := apply.RemoveCopy(ctx, p.source, is); err != nil {
				return err
			}
		default:
			stayed = append(stayed, capi.ObjectKeyOf(o).String())
		}
	}
	if len(stayed) > 0 {
		return fmt.Errorf("objects stayed in the management cluster although the Cluster object is gone there: %s: "+
			"compare them with those in cluster %s and remove them%s", strings.Join(stayed, ", "), p.cfg.ClusterName,
			p.whereTheCopyIs())
	}
	return nil
}
