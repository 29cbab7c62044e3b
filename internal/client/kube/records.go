package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotations of the Secrets in which Helm keeps its records.
const (
	// OwnerAnnotation names who wrote a record. Whoever has the same name is never at work twice at once.
	OwnerAnnotation = "slipway-owner"
	// RecoveredAnnotation says when and why the release was recovered in the operation that wrote the record.
	RecoveredAnnotation = "slipway-recovered"
)

// records are a namespace's Secrets, signed: Helm's storage driver knows nothing of annotations and would take them off
// with each update.
type records struct {
	typed.SecretInterface
	owner     string
	recovered string          // of this operation; empty: nothing was
	made      map[string]bool // the records that this operation made
}

func newRecords(c *Cluster, namespace, owner string, log func(string, ...any)) (*records, *storage.Storage, error) {
	clients, err := kubernetes.NewForConfigAndClient(c.config, c.http)
	if err != nil {
		return nil, nil, fmt.Errorf("create a client for %s: %w", c.Host(), err)
	}
	r := &records{SecretInterface: clients.CoreV1().Secrets(namespace), owner: owner, made: map[string]bool{}}
	d := driver.NewSecrets(r)
	d.Log = log
	s := storage.Init(d)
	s.Log = log
	return r, s, nil
}

func (r *records) sign(s *corev1.Secret, recovered string) *corev1.Secret {
	s = s.DeepCopy()
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[OwnerAnnotation] = r.owner
	if recovered != "" {
		s.Annotations[RecoveredAnnotation] = recovered
	}
	return s
}

// Create signs a record as it is made, so that there is none of an operation of ours that is not signed.
func (r *records) Create(ctx context.Context, s *corev1.Secret, opts metav1.CreateOptions) (*corev1.Secret, error) {
	r.made[s.Name] = true
	return r.SecretInterface.Create(ctx, r.sign(s, r.recovered), opts)
}

// Update keeps what the record says of an earlier recovery. Of this one speak the records that it makes, and the one of
// a release that it removes: not the good revision to which it goes back.
func (r *records) Update(ctx context.Context, s *corev1.Secret, opts metav1.UpdateOptions) (*corev1.Secret, error) {
	was, err := r.Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	recovered := ""
	if err == nil {
		recovered = was.Annotations[RecoveredAnnotation]
	}
	status := release.Status(s.Labels["status"])
	if r.recovered != "" && (r.made[s.Name] || status == release.StatusUninstalling ||
		status == release.StatusUninstalled) {
		recovered = r.recovered
	}
	return r.SecretInterface.Update(ctx, r.sign(s, recovered), opts)
}

// ReleaseRecord is one of the records that Helm keeps of a release, a Secret, without the chart inside.
type ReleaseRecord struct {
	Name     string // of the Secret
	UID      types.UID
	Revision int
	Status   string    // Helm's status: deployed, pending-upgrade, …
	Written  time.Time // last, by the API server's clock; zero: it does not say

	namespace, resourceVersion string
	owner, recovered           string // the annotations
}

// Pending reports whether an operation has begun with the record and not ended.
func (r ReleaseRecord) Pending() bool { return release.Status(r.Status).IsPending() }

// Deployed reports whether the operation of the record has ended well.
func (r ReleaseRecord) Deployed() bool { return r.Status == release.StatusDeployed.String() }

// ReleaseRecords lists the records of a release, the oldest first.
func (c *Cluster) ReleaseRecords(ctx context.Context, namespace, name string) ([]ReleaseRecord, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(secretGVK)
	if err := c.List(ctx, list, client.InNamespace(namespace), ReleaseLabels(name)); err != nil {
		return nil, fmt.Errorf("list the records of helm release %s: %w", name, err)
	}
	var all []ReleaseRecord
	for _, o := range list.Items {
		revision, err := strconv.Atoi(o.Labels["version"])
		if err != nil {
			continue
		}
		r := ReleaseRecord{Name: o.Name, UID: o.UID, Revision: revision, Status: o.Labels["status"],
			Written: o.CreationTimestamp.Time, namespace: o.Namespace, resourceVersion: o.ResourceVersion,
			owner: o.Annotations[OwnerAnnotation], recovered: o.Annotations[RecoveredAnnotation]}
		for _, f := range o.ManagedFields {
			if f.Time != nil && f.Time.After(r.Written) {
				r.Written = f.Time.Time
			}
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b ReleaseRecord) int { return a.Revision - b.Revision })
	return all, nil
}

// RemoveReleaseRecord deletes a record if it is as it was read. One that was written since is a conflict.
func (c *Cluster) RemoveReleaseRecord(ctx context.Context, r ReleaseRecord) error {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(secretGVK)
	o.Namespace, o.Name = r.namespace, r.Name
	if err := c.Delete(ctx, o, client.Preconditions{UID: &r.UID, ResourceVersion: &r.resourceVersion}); err != nil {
		return fmt.Errorf("delete helm's record %s in namespace %s: %w", r.Name, r.namespace, err)
	}
	return nil
}

// ReleaseLabels select the records of a release among a namespace's Secrets.
func ReleaseLabels(name string) client.MatchingLabels {
	return client.MatchingLabels{"owner": "helm", "name": name}
}

// Clock is the API server's own time, to a second: ages of its objects are not measured with this machine's clock,
// which may be set differently and may jump.
func (c *Cluster) Clock(ctx context.Context) (time.Time, error) {
	resp, err := c.get(ctx, "/version")
	if err != nil {
		return time.Time{}, err
	}
	defer resp.Body.Close()
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the API server %s does not report its time: %w", c.Host(), err)
	}
	return at, nil
}

// DeployedRevision is the revision of a release that is deployed; 0 when its last revision is in any other state or
// there is none. It reads the labels of Helm's records only, not the charts inside.
func (c *Cluster) DeployedRevision(ctx context.Context, namespace, name string) (int, error) {
	all, err := c.ReleaseRecords(ctx, namespace, name)
	if err != nil || len(all) == 0 || !all[len(all)-1].Deployed() {
		return 0, err
	}
	return all[len(all)-1].Revision, nil
}
