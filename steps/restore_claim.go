package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
)

// claimRestore makes sure that nobody else restores the cluster: two people with one backup each, at three in the morning,
// would make two clusters of one name and one set of keys. That the reservation of the cluster is another state folder's says
// nothing here: that one's cluster is lost.
func (r *restorer) claimRestore(ctx context.Context, say flow.Say, _ Lost) (Reservation, error) {
	by, err := r.identity()
	if err != nil {
		return Reservation{}, err
	}
	return r.claim(ctx, say, by, r.claimed)
}

// claimed finds, makes or takes over the claim.
func (r *restorer) claimed(ctx context.Context, say flow.Say, by string) (*hetzner.Reservation, error) {
	api, claim := r.tools.Hetzner, hetzner.RestoreClaim(r.cfg.ClusterName)
	found, err := claim.Find(ctx, api)
	if err != nil || found != nil && found.By == by {
		return found, err
	}
	if found == nil {
		return claim.Reserve(ctx, api, by, hostname())
	}
	// The folder of a restore can be lost, too. What it made in the management cluster is marked.
	mgmt, err := r.managementOf(ctx)
	if err != nil {
		return nil, err
	}
	if mgmt != nil {
		switch cluster, err := r.clusterAt(ctx, mgmt); {
		case err != nil:
			return nil, final(fmt.Errorf("find out whether the restore that state folder %s began is this one: %w", found.By, err))
		case cluster != nil && cluster.GetAnnotations()[restoredAnnotation] == r.source.identity().Snapshot:
			say("taking the restore over from state folder %s: the management cluster holds what it made", found.By)
			return found, found.TakeOver(ctx, api, by, hostname())
		}
	}
	return nil, final(&RestoringError{found})
}

// claimStands holds also where nobody has the claim: the restore gives it up shortly before its end.
func (r *restorer) claimStands(ctx context.Context, was Reservation) flow.Verdict {
	found, err := hetzner.RestoreClaim(r.cfg.ClusterName).Find(ctx, r.tools.Hetzner)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found != nil && found.By != was.By:
		return flow.Gone("state folder %s restores %s", found.By, r.cfg.ClusterName)
	}
	return flow.Holds()
}

// handOver makes the restored cluster this state folder's, as a bootstrap would have, and gives the claim up.
func (r *restorer) handOver(ctx context.Context, say flow.Say) (Reservation, error) {
	out, err := r.reserve(ctx, say)
	if err != nil {
		return Reservation{}, err
	}
	found, err := hetzner.RestoreClaim(r.cfg.ClusterName).Find(ctx, r.tools.Hetzner)
	if err != nil || found == nil || found.By != out.By {
		return out, err
	}
	return out, found.Release(ctx, r.tools.Hetzner)
}
