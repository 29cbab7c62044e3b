package kube

import (
	"context"
	"fmt"
	"time"

	"helm.sh/helm/v3/pkg/release"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ReleaseRecord is one of the records that Helm keeps of a release, a Secret, without the chart inside.
type ReleaseRecord struct {
	Name     string // of the Secret
	UID      types.UID
	Revision int
	Status   string    // Helm's status: deployed, pending-upgrade, …
	Written  time.Time // last, by the API server's clock; zero: it does not say

	secret metav1.ObjectMeta
}

// Pending reports whether an operation has begun with the record and not ended.
func (r ReleaseRecord) Pending() bool { return release.Status(r.Status).IsPending() }

// Deployed reports whether the operation of the record has ended well.
func (r ReleaseRecord) Deployed() bool { return r.Status == release.StatusDeployed.String() }

// ReleaseRecords lists the records of a release, the oldest first.
func (c *Cluster) ReleaseRecords(ctx context.Context, namespace, name string) ([]ReleaseRecord, error) {
	all, err := c.release(ctx, namespace, name)
	var records []ReleaseRecord
	for _, r := range all {
		records = append(records, ReleaseRecord{Name: r.secret.Name, UID: r.secret.UID, Revision: r.revision,
			Status: r.status, Written: r.written, secret: r.secret})
	}
	return records, err
}

// RemoveReleaseRecord deletes a record if it is as it was read. One that was written since is a conflict.
func (c *Cluster) RemoveReleaseRecord(ctx context.Context, r ReleaseRecord) error {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(secretGVK)
	o.Namespace, o.Name = r.secret.Namespace, r.secret.Name
	unchanged := client.Preconditions{UID: &r.secret.UID, ResourceVersion: &r.secret.ResourceVersion}
	if err := c.Delete(ctx, o, unchanged); err != nil {
		return fmt.Errorf("delete helm's record %s in namespace %s: %w", r.Name, r.secret.Namespace, err)
	}
	return nil
}

// Clock is the API server's own time, to a second.
func (c *Cluster) Clock(ctx context.Context) (time.Time, error) { return c.clock(ctx) }
