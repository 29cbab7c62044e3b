package statedir

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
)

// Owner is the cluster that a state folder belongs to.
type Owner struct {
	Cluster   string // CLUSTER_NAME
	Namespace string // of its Cluster API objects; empty: default
	Versions  string // set that it is made with
}

// OwnerOf is the cluster of a configuration.
func OwnerOf(cfg config.Config) Owner {
	return Owner{Cluster: cfg.ClusterName, Namespace: cfg.Namespace, Versions: cfg.Versions}
}

// recordedNamespace is the namespace as the folder's record has it: empty for the default.
func (o Owner) recordedNamespace() string {
	if o.Namespace == config.DefaultNamespace {
		return ""
	}
	return o.Namespace
}

// is reports whether a record is of this cluster.
func (o Owner) is(record *ownership.Record) bool {
	return record.Cluster == o.Cluster && record.Namespace == o.recordedNamespace()
}

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

// CheckOwner refuses a folder that belongs to another cluster, or to one whose objects are in another namespace, and
// one that other users can write.
func (s Dir) CheckOwner(ctx context.Context, of Owner) error {
	if err := s.checkAccess(); err != nil {
		return err
	}
	cluster := of.Cluster
	record, err := s.owner(ctx)
	var mixed *ownership.MixedError
	switch {
	case errors.As(err, &mixed) && slices.Contains(mixed.Clusters, cluster):
		return usage.Errorf("%s belongs to no single cluster: %w, because an earlier release allowed that. Work with each "+
			"in a state folder of its own: "+
			"add --state-dir NEW, where destroy finds the management cluster and the servers by their names", s, mixed)
	case err != nil:
		return usage.Errorf("state folder %s: %w", s, err)
	case record == nil || of.is(record):
		return nil
	}
	unused, err := s.unused(ctx, *record)
	if err != nil || unused {
		return err
	}
	if record.Cluster == cluster {
		namespace := cmp.Or(record.Namespace, config.DefaultNamespace)
		return usage.Errorf("the Cluster API objects of cluster %s are in namespace %s, not in %s, and a cluster keeps its "+
			"namespace: %s; set NAMESPACE=%s. Nothing was changed", cluster, namespace, cmp.Or(of.Namespace,
			config.DefaultNamespace), s, namespace)
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

// VersionSet is the version set that the folder's cluster was made with, or upgraded to last; empty: a release that
// recorded none made it. made reports whether there is such a cluster.
func (s Dir) VersionSet(ctx context.Context, of Owner) (set string, made bool) {
	record, err := s.owner(ctx)
	switch {
	case err != nil: // CheckOwner says what is wrong
		return "", true
	case record == nil: // of a release that wrote no record, before its journal names a cluster
		record = &ownership.Record{}
	case !of.is(record):
		return "", false
	}
	if unused, err := s.unused(ctx, *record); err == nil && unused {
		return "", false
	}
	return record.Versions, true
}

// KeepVersionSet records the set that the cluster was upgraded to.
func (s Dir) KeepVersionSet(set string) error {
	return ownership.Update(s.Files(), func(r *ownership.Record) { r.Versions = set })
}

// recordsVersions reports whether the record has the version set of the cluster that is about to be made; of one that
// is made it keeps what it has.
func (s Dir) recordsVersions(ctx context.Context, of Owner) bool {
	record, err := s.owner(ctx)
	if err != nil || record == nil || record.Versions == of.Versions {
		return true
	}
	unused, err := s.unused(ctx, *record)
	return err == nil && !unused
}

// recordOwner makes the folder belong to a cluster. The caller holds the journal's lock.
func (s Dir) recordOwner(ctx context.Context, of Owner) error {
	record, err := s.owner(ctx)
	if err != nil {
		return err
	}
	if record == nil || !of.is(record) {
		record = &ownership.Record{Cluster: of.Cluster, Namespace: of.recordedNamespace()}
	}
	if _, made := s.VersionSet(ctx, of); !made {
		record.Versions = of.Versions
	}
	return record.Write(s.Files())
}
