package statedir

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/recovery/records"
	"github.com/slipway-k8s/slipway/internal/usage"
)

// owner is the record of the cluster that the folder belongs to; nil where it belongs to none. Folders of releases that
// wrote no record are judged by their journal, and where that is lost or cannot be read by the kubeconfig in them.
func (s Dir) owner(ctx context.Context) (*ownership.Record, error) {
	record, err := ownership.Read(s.Files())
	if err != nil || record != nil {
		return record, err
	}
	if snapshot, err := s.Journal().Load(ctx); err == nil { // else it is an error of its own wherever it is needed
		if record, err := ownership.FromJournal(snapshot); err != nil || record != nil {
			return record, err
		}
	}
	return ownership.FromKubeconfig(s.Files())
}

// CheckOwner refuses a folder that belongs to another cluster.
func (s Dir) CheckOwner(ctx context.Context, cluster string) error {
	record, err := s.owner(ctx)
	var mixed *ownership.MixedError
	switch {
	case errors.As(err, &mixed) && slices.Contains(mixed.Clusters, cluster):
		return usage.Errorf("%s belongs to no single cluster: %w, because an earlier release allowed that. Work with each "+
			"in a state folder of its own: "+
			"add --state-dir NEW, where destroy finds the management cluster and the servers by their names", s, mixed)
	case err != nil:
		return usage.Errorf("state folder %s: %w", s, err)
	case record == nil || record.Cluster == cluster:
		return nil
	}
	unused, err := s.unused(ctx, *record)
	if err != nil || unused {
		return err
	}
	return usage.Errorf("this folder belongs to cluster %s, not to %s: %s; add CLUSTER_NAME=%s, or name another folder "+
		"for cluster %s (--state-dir). "+
		"Nothing was changed", record.Cluster, cluster, s, record.Cluster, cluster)
}

// unused reports whether nothing was made for the cluster that the folder belongs to, so that it may belong to another.
func (s Dir) unused(ctx context.Context, owner ownership.Record) (bool, error) {
	if owner.Reservation != 0 || owner.Management != nil ||
		slices.ContainsFunc(records.ClusterFiles(), func(name string) bool { return s.has(name) }) {
		return false, nil
	}
	made, err := s.made(ctx)
	return !made, err
}

// recordOwner makes the folder belong to a cluster. The caller holds the journal's lock.
func (s Dir) recordOwner(ctx context.Context, cluster string) error {
	record, err := s.owner(ctx)
	if err != nil {
		return err
	}
	if record == nil || record.Cluster != cluster {
		record = &ownership.Record{Cluster: cluster}
	}
	return record.Write(s.Files())
}
