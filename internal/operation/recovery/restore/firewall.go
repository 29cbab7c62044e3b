package restore

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
)

// DetachedFirewall is the firewall that the servers were behind and are not while they are made; 0: there is none.
type DetachedFirewall struct {
	Firewall int64 `json:"firewall,omitempty"`
}

// detachFirewall takes a surviving firewall off the servers to come. The temporary management cluster reaches Talos on
// their public addresses, as in a bootstrap, and they come behind it as there: at the end. What is taken off is written
// down first.
func (r inputs) detachFirewall(ctx context.Context, say flow.Say) (DetachedFirewall, error) {
	record, err := records.ReadRestore(r.tools.Files)
	if err != nil || record == nil {
		return DetachedFirewall{}, err
	}
	f, err := hetzner.FindFirewall(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return DetachedFirewall{}, err
	}
	if f != nil && f.Selects(r.cfg.ClusterName) {
		record.Firewall = f.ID
		if err := record.Write(r.tools.Files); err != nil {
			return DetachedFirewall{}, err
		}
		say("taking firewall %s off servers that are made now", f.Name)
		if err := hetzner.UncoverServers(ctx, r.tools.Hetzner, f, r.cfg.ClusterName); err != nil {
			return DetachedFirewall{}, err
		}
	}
	return DetachedFirewall{Firewall: record.Firewall}, nil
}

// attachFirewall puts the servers behind the firewall that they were behind, as the record of the restore has it: it
// comes after the pivot, where no step takes anything from before.
func (r inputs) attachFirewall(ctx context.Context, say flow.Say) (DetachedFirewall, error) {
	was, err := records.ReadRestore(r.tools.Files)
	if err != nil || was == nil || was.Firewall == 0 {
		return DetachedFirewall{}, err
	}
	f, err := hetzner.FindFirewall(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return DetachedFirewall{}, err
	}
	if f == nil {
		say("note: firewall %d, which the servers were behind, is gone: firewall-apply makes another", was.Firewall)
		return DetachedFirewall{}, nil
	}
	say("applying firewall %s to the servers", f.Name)
	return DetachedFirewall{Firewall: f.ID}, hetzner.CoverServers(ctx, r.tools.Hetzner, f, r.cfg.ClusterName)
}

// hadFirewall tells whether the cluster was behind a firewall when the backup was made.
func hadFirewall(s backup.Cluster) bool {
	for _, resource := range s.Contents.Inventory.Resources {
		if resource.Kind == string(hetzner.KindFirewall) {
			return true
		}
	}
	return false
}
