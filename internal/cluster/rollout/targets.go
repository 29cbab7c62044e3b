package rollout

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
)

// Untargeted are the control plane servers that the load balancer does not have as targets, of those whose Machines
// stay and whose nodes are Ready: CAPH adds a server before its Machine is ready, and v1.0 can leave one out for
// ever.
func (o *Reader) Untargeted(ctx context.Context, r State) ([]hetzner.Untargeted, error) {
	staying := map[string]bool{}
	for _, m := range capi.ControlPlaneMachines(r.Machines) {
		staying[capi.Text(&m, "spec", "infrastructureRef", "name")] = m.GetDeletionTimestamp() == nil
	}
	ready := map[string]bool{}
	for i := range r.Nodes {
		ready[r.Nodes[i].Spec.ProviderID], _ = situation.NodeReady(&r.Nodes[i])
	}
	servers := slices.DeleteFunc(slices.Clone(r.Servers), func(s hetzner.Server) bool {
		return !staying[s.Name] || !ready[s.ProviderID()]
	})
	return hetzner.FindUntargeted(ctx, o.Tools.Hetzner, o.Cfg.ClusterName, servers)
}

// balance adds them.
func (o *Reader) balance(ctx context.Context, r State) error {
	if o.Balance == nil {
		return nil
	}
	all, err := o.Untargeted(ctx, r)
	if err != nil {
		return err
	}
	for _, u := range all {
		if err := u.AddTargets(ctx, o.Tools.Hetzner); err != nil {
			return err
		}
		o.Balance("%s, which CAPH v1.0 can leave out: added", u)
	}
	return nil
}
