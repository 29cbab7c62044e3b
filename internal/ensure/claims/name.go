package claims

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Reserve makes sure that this state folder alone creates the cluster of this name in the project. Cluster API's
// provider adopts by the cluster's name whatever it finds: two management clusters that both create the cluster would
// fight over one network, one load balancer and each other's servers.
func Reserve(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (*hetzner.Reservation, error) {
	known, err := ownership.KnownIdentity(tools)
	if err != nil {
		return nil, err
	}
	by, err := ownership.Identity(tools)
	if err != nil {
		return nil, err
	}
	if err := RefuseRecovering(ctx, cfg, tools, by); err != nil {
		return nil, err
	}
	found, err := claim(ctx, cfg, say, by,
		func(ctx context.Context, say flow.Say, by string) (*hetzner.Reservation, error) {
			return findOrReserve(ctx, cfg, tools, say, known, by)
		})
	if err != nil {
		return nil, err
	}
	return found, ownership.Update(tools.Files, func(r *ownership.Record) { r.Reservation = found.ID })
}

// ReserveFree reserves the cluster's name where no other state folder has it; a *ReservedError says whose it is. It
// takes over nothing: who adopts a cluster that another state folder works on has named the wrong one.
func ReserveFree(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) error {
	by, err := ownership.Identity(tools)
	if err != nil {
		return err
	}
	if err := RefuseRecovering(ctx, cfg, tools, by); err != nil {
		return err
	}
	claim := hetzner.ClusterClaim(cfg.ClusterName)
	found, err := claim.Find(ctx, tools.Hetzner)
	if err == nil && found == nil {
		say("reserving the name %s in the project", cfg.ClusterName)
		if found, err = claim.Reserve(ctx, tools.Hetzner, by, hostname()); errors.Is(err, hetzner.ErrReserved) {
			found, err = claim.Find(ctx, tools.Hetzner) // by one that was faster
		}
	}
	switch {
	case err != nil:
		return err
	case found == nil || found.By != by:
		return &ReservedError{Cluster: cfg.ClusterName, reservation: found}
	}
	return ownership.Update(tools.Files, func(r *ownership.Record) { r.Reservation = found.ID })
}

// findOrReserve finds, creates or takes over the reservation. known is the identity that the state folder has had
// before; empty: none.
func findOrReserve(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say,
	known, by string) (*hetzner.Reservation, error) {
	api, cluster := tools.Hetzner, cfg.ClusterName
	claim := hetzner.ClusterClaim(cluster)
	found, err := claim.Find(ctx, api)
	if err != nil || found != nil && found.By == by {
		return found, err
	}
	if taken, err := takenOver(tools, found, known); err != nil {
		return nil, err
	} else if taken != nil {
		return nil, wait.Final(taken)
	}
	traces, err := hetzner.Traces(ctx, api, cluster)
	if err != nil {
		return nil, err
	}
	if found != nil || len(traces) > 0 {
		// A state folder can be lost. The objects of Cluster API tell whose the cluster is.
		managed, err := managed(ctx, cfg, tools, say)
		if err != nil {
			return nil, wait.Final(fmt.Errorf("cluster %s exists, and whether it is this state folder's cannot be found out: %w",
				cluster, err))
		}
		if !managed {
			return nil, wait.Final(&ReservedError{Cluster: cluster, Traces: traces, reservation: found})
		}
	}
	if found == nil {
		say("reserving the name %s in the project", cluster)
		return claim.Reserve(ctx, api, by, hostname())
	}
	say("taking the name %s over from state folder %s: the management cluster holds the cluster's objects", cluster,
		found.By)
	return found, found.TakeOver(ctx, api, by, hostname())
}

// managed tells whether a management cluster that this state folder, or the provider of its management cluster, leads
// to has the Cluster object. One that does not answer is an error.
func managed(ctx context.Context, cfg config.Config, tools platform.Tools, say flow.Say) (bool, error) {
	source, _, err := connect.OpenManagement(ctx, cfg, tools, say)
	if err != nil {
		return false, err
	}
	self, refused := connect.Cluster(tools, platform.Kubeconfig)
	switch {
	case errors.Is(refused, fs.ErrNotExist):
		refused = nil
	case refused != nil && !kubeconfig.Refused(refused):
		return false, refused
	}
	for _, c := range []*kube.Cluster{source, self} {
		if c == nil {
			continue
		}
		object, err := connect.FindCluster(ctx, cfg, c)
		switch {
		case err != nil:
			return false, err
		case object != nil:
			return true, nil
		}
	}
	return false, refused
}

// VerifyName asks Hetzner whether the state folder of an identity still has the reservation of the cluster's name.
func VerifyName(ctx context.Context, cfg config.Config, tools platform.Tools, id int64, by string) flow.Verdict {
	found, err := hetzner.ClusterClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	switch {
	case err != nil:
		return flow.Unknown(err)
	case found == nil:
		return unreserved(ctx, cfg, tools, id)
	case found.By != by:
		return flow.Gone("state folder %s has taken the name %s over", found.By, cfg.ClusterName)
	}
	return flow.Holds()
}

// unreserved tells a reservation that was deleted from a token of another project, in which everything would be made a
// second time: by a management cluster that has made the cluster already, and would be given that token. Where neither
// that management cluster nor the cluster exists, and where something of the cluster is left in the project, the name
// is reserved again.
func unreserved(ctx context.Context, cfg config.Config, tools platform.Tools, id int64) flow.Verdict {
	traces, err := hetzner.Traces(ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	gone := flow.Gone("nothing reserves the name %s in the project any more", cfg.ClusterName)
	if len(traces) > 0 {
		return gone
	}
	switch alive, err := outlived(ctx, cfg, tools); {
	case err != nil:
		return flow.Unknown(err)
	case alive == "":
		return gone
	default:
		return flow.Unknown(&OtherProjectError{Cluster: cfg.ClusterName, Reservation: id, Alive: alive})
	}
}

// CheckProject returns an *OtherProjectError where the token is of another project than the one in which the state
// folder has reserved the cluster's name, and a *TakenOverError where another state folder has that name now. A
// question that cannot be asked is no error: what comes next asks Hetzner too, and says so.
func CheckProject(ctx context.Context, cfg config.Config, tools platform.Tools) error {
	tools = tools.WithDefaults()
	record, err := ownership.Read(tools.Files)
	if err != nil || record == nil || record.Reservation == 0 {
		return err
	}
	found, err := hetzner.ClusterClaim(cfg.ClusterName).Find(ctx, tools.Hetzner)
	if err == nil && found != nil {
		by, err := ownership.KnownIdentity(tools)
		if err != nil {
			return err
		}
		taken, err := takenOver(tools, found, by)
		if err != nil {
			return err
		}
		if taken != nil {
			return taken
		}
	}
	if err != nil || found != nil {
		return ctx.Err()
	}
	verdict := unreserved(ctx, cfg, tools, record.Reservation)
	if other := (*OtherProjectError)(nil); errors.As(verdict.Err(), &other) {
		return other
	}
	return ctx.Err()
}

// outlived names what still exists of that which this state folder opens: the management cluster, or the cluster
// itself; empty: nothing.
func outlived(ctx context.Context, cfg config.Config, tools platform.Tools) (string, error) {
	p, name := tools.Management, cfg.ManagementName()
	if _, err := tools.Files.Read(platform.ManagementKubeconfig); err == nil {
		exists, err := p.Exists(ctx, name)
		if err != nil {
			return "", fmt.Errorf("%s cannot tell whether management cluster %s exists: %w", p.Name(), name, err)
		}
		if exists {
			return "management cluster " + name, nil
		}
	}
	self, err := connect.Cluster(tools, platform.Kubeconfig)
	if err != nil {
		return "", nil // there is no kubeconfig, or one that opens nothing
	}
	asking, cancel := context.WithTimeout(ctx, connect.AliveWithin)
	defer cancel()
	_, err = self.UID(asking)
	if status := (apierrors.APIStatus)(nil); err == nil || errors.As(err, &status) {
		return "cluster " + cfg.ClusterName, nil
	}
	return "", nil
}
