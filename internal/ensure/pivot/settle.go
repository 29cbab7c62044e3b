package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// awaitSettled removes what a dead move left at the source, and waits until the cluster's own controllers have looked
// at every object once and found it well, with the servers that it had.
func awaitSettled(ctx context.Context, cfg config.Config, tools platform.Tools, observer *situation.Observer,
	say flow.Say, s clusters) (Result, error) {
	if s.source != nil {
		if err := sweepSource(ctx, cfg, tools, say, s.source); err != nil {
			return Result{}, err
		}
	}
	state, err := records.PivotCopyOf(tools).State(cfg.ClusterName)
	if err != nil {
		return Result{}, err
	}
	uid, servers, err := AwaitReconciled(ctx, cfg, tools, observer, say, s.target, cfg.NodesTimeout.D(),
		func(servers []int64) error {
			return sameServers(cfg, tools, say, &state, servers)
		})
	if err != nil {
		return Result{}, err
	}
	out := Result{Cluster: uid, Servers: servers}
	if err := records.PivotCopyOf(tools).RemoveSecrets(); err != nil {
		return Result{}, fmt.Errorf("remove the Secrets from the copy of the pivot: %w", err)
	}
	state.Phase, state.Cluster, state.Servers, state.Changed = records.Settled, cfg.ClusterName, out.Servers, nil
	return out, records.PivotCopyOf(tools).SetState(state)
}

// sameServers is an error where the servers are not those from before the move. It is returned once
// before --yes can agree to it: an operator who gives --yes with every run has not looked at these servers.
func sameServers(cfg config.Config, tools platform.Tools, say flow.Say, state *records.PivotState,
	servers []int64) error {
	if state.Servers == nil || slices.Equal(servers, state.Servers) {
		return nil
	}
	if tools.Consent && state.Changed != nil && slices.Equal(servers, state.Changed) {
		say("as agreed, the servers are %v, and were %v before the pivot", servers, state.Servers)
		state.Servers, state.Changed = servers, nil
		return records.PivotCopyOf(tools).SetState(*state)
	}
	was := state.Servers
	state.Changed = servers
	if err := records.PivotCopyOf(tools).SetState(*state); err != nil {
		return err
	}
	return fmt.Errorf("the servers changed during the pivot: %v before, %v now: see which Machine they belong to "+
		"(spec.providerID of the Machines in cluster %s); where all of them are its own, as after a replace-machine, agree "+
		"with pivot --yes", was, servers, cfg.ClusterName)
}

// sweepSource removes Secrets that a move left at the source when it ended in its last steps: those without an owner
// are deleted together with the Cluster object. Anything else that stayed is not expected, and left to the operator.
func sweepSource(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	source *kube.Cluster) error {
	copied, err := records.PivotCopyOf(tools).All()
	if err != nil {
		return err
	}
	var stayed []string
	for _, o := range copied {
		is, err := apply.ReadCopied(ctx, source, o)
		if err != nil {
			return err
		}
		switch {
		case is == nil:
		case is.GetKind() == "Secret" || is.GetKind() == "ConfigMap":
			say("removing %s, which stayed in the management cluster", capi.ObjectKeyOf(o))
			if err := apply.RemoveCopy(ctx, source, is); err != nil {
				return err
			}
		default:
			stayed = append(stayed, capi.ObjectKeyOf(o).String())
		}
	}
	if len(stayed) > 0 {
		return fmt.Errorf("objects stayed in the management cluster although the Cluster object is gone there: %s: "+
			"compare them with those in cluster %s and remove them%s", strings.Join(stayed, ", "), cfg.ClusterName,
			whereTheCopyIs(tools))
	}
	return nil
}
