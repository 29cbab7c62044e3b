package releases

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	explain "github.com/slipway-k8s/slipway/internal/cluster/why"
)

// stuck is a HelmRelease that can be recovered.
type stuck struct {
	release helmRelease
	kind    Kind
	why     string             // it is stuck
	what    string             // recovers it
	record  kube.ReleaseRecord // the newest one of Helm
	begun   *Audit             // of an earlier run that did not end; nil: none
}

// found is what the HelmReleases of a cluster are like.
type found struct {
	stuck   []stuck
	left    []Left
	healthy int
}

// search judges HelmReleases as they are at one time.
type search struct {
	cluster *kube.Cluster
	options Options
	now     time.Time // by the API server's clock
}

// find judges every HelmRelease of the cluster, or of a namespace. It changes nothing.
func find(ctx context.Context, cluster *kube.Cluster, o Options) (all found, now time.Time, err error) {
	if now, err = cluster.Clock(ctx); err != nil {
		return all, now, fmt.Errorf("find out how long HelmReleases are as they are: %w", err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := cluster.List(ctx, list, client.InNamespace(o.Namespace)); kube.Absent(err) {
		return all, now, fmt.Errorf("the cluster %s has no HelmReleases: %w", cluster.Host(), ErrNoKind)
	} else if err != nil {
		return all, now, fmt.Errorf("list the HelmReleases: %w", err)
	}
	s := search{cluster, o, now}
	for i := range list.Items {
		r, err := fromUnstructured(&list.Items[i])
		if err != nil {
			return all, now, err
		}
		is, why, err := s.judge(ctx, r)
		switch {
		case err != nil:
			return all, now, fmt.Errorf("examine %s: %w", r, err)
		case is != nil:
			all.stuck = append(all.stuck, *is)
		case why != "":
			all.left = append(all.left, Left{r.Namespace, r.Name, why})
		default:
			all.healthy++
		}
	}
	return all, now, nil
}

// judge says whether a HelmRelease is stuck, or why one that is not Ready is left alone. Neither: it is healthy.
func (s search) judge(ctx context.Context, r helmRelease) (is *stuck, why string, err error) {
	if r.DeletionTimestamp != nil {
		return nil, "it is being deleted", nil
	}
	audit, err := auditOf(r.Annotations)
	if err != nil {
		return nil, err.Error(), nil
	}
	ready := r.condition(conditionReady)
	if unfinished := s.unfinished(r, audit, ready); unfinished != nil {
		return unfinished, "", nil
	}
	switch {
	case r.Spec.Suspend:
		return nil, "the operator has suspended it", nil
	case ready.Status == metav1.ConditionTrue:
		return nil, "", nil
	case len(r.Spec.KubeConfig) > 0:
		return nil, "its release is in the cluster of its spec.kubeConfig, and so are Helm's records", nil
	case s.options.Namespace != "" && r.storageNamespace() != s.options.Namespace:
		return nil, "Helm's records of it are in namespace " + r.storageNamespace() + ", which --namespace leaves out", nil
	}
	records, err := s.cluster.ReleaseRecords(ctx, r.storageNamespace(), r.releaseName())
	if err != nil {
		return nil, "", err
	}
	var newest kube.ReleaseRecord
	if len(records) > 0 {
		newest = records[len(records)-1]
	}
	if newest.Pending() {
		is, why = s.pending(r, newest)
	} else {
		is, why = s.unreported(r, newest, ready)
	}
	if is != nil && audit.guards(r.Generation) {
		return nil, fmt.Sprintf("%s; it was recovered in this generation at %s by %s (%s), and is not recovered twice: see "+
			"why it is stuck again (kubectl -n %s describe helmrelease %s)", is.why, audit.At.Format(time.RFC3339), audit.By,
			audit.What, r.Namespace, r.Name), nil
	}
	return is, why, nil
}

// unfinished finds a recovery that a run has begun and not ended. The operator who has resumed the object since has
// taken it over.
func (s search) unfinished(r helmRelease, audit *Audit, ready metav1.Condition) *stuck {
	if audit == nil || audit.State != Begun {
		return nil
	}
	is := &stuck{release: r, kind: audit.Kind, begun: audit, what: audit.What,
		why: fmt.Sprintf("its recovery of %s by %s was not finished", audit.At.Format(time.RFC3339), audit.By)}
	switch {
	case audit.Kind == Pending && r.Spec.Suspend:
		return is
	case audit.Kind == Status && ready.Status == metav1.ConditionTrue && ready.Reason == reasonRecovered:
		return is
	}
	return nil
}

// pending judges a release whose newest record is pending. Whoever works on it gets the time that the object allows an
// operation.
func (s search) pending(r helmRelease, newest kube.ReleaseRecord) (*stuck, string) {
	since := s.age(newest.Written)
	limit := max(s.options.Threshold, r.longestOperation())
	if since < limit {
		return nil, fmt.Sprintf("revision %d is %s since %s: whoever began that may be at work until that is %s",
			newest.Revision, newest.Status, text.Elapsed(since), text.Elapsed(limit))
	}
	if changed := s.age(r.changed()); !r.changed().IsZero() && changed < s.options.Threshold {
		return nil, fmt.Sprintf("revision %d is %s, and the HelmRelease was changed %s ago: its controller may be at work",
			newest.Revision, newest.Status, text.Elapsed(changed))
	}
	return &stuck{
		release: r, kind: Pending, record: newest,
		why: fmt.Sprintf("revision %d of Helm release %s is %s since %s: the controller that began it has ended",
			newest.Revision, r.releaseName(), newest.Status, text.Elapsed(since)),
		what: fmt.Sprintf("suspend it, delete Helm's record %s (%s) in namespace %s, resume it", newest.Name, newest.Status,
			r.storageNamespace()),
	}, ""
}

// unreported judges a release without a pending record that is not Ready. It is stuck where everything but the
// condition Ready says that it is deployed.
func (s search) unreported(r helmRelease, newest kube.ReleaseRecord, ready metav1.Condition) (*stuck, string) {
	if ready.Status != metav1.ConditionUnknown {
		if ready.Type == "" {
			return nil, "its controller has not reported on it"
		}
		return nil, reported(ready)
	}
	for _, bad := range []metav1.Condition{{Type: conditionStalled, Status: metav1.ConditionTrue},
		{Type: conditionReleased, Status: metav1.ConditionFalse}, {Type: conditionRemediated, Status: metav1.ConditionTrue}} {
		if c := r.condition(bad.Type); c.Status == bad.Status {
			return nil, reported(c)
		}
	}
	if why := s.atWork(r, ready); why != "" {
		return nil, why
	}
	latest, reported := r.latest()
	switch {
	case newest.Revision == 0:
		return nil, "Helm has no record of it"
	case !newest.Deployed():
		return nil, fmt.Sprintf("revision %d of Helm release %s is %s", newest.Revision, r.releaseName(), newest.Status)
	case !reported:
		return nil, "its controller has not reported a revision (status.history is empty)"
	case latest.Name != r.releaseName() || latest.Namespace != r.releaseNamespace() || latest.Version != newest.Revision ||
		latest.Status != newest.Status:
		return nil, fmt.Sprintf("its controller has reported revision %d of %s/%s as %s, and Helm's newest record is revision "+
			"%d of %s/%s, %s", latest.Version, latest.Namespace, latest.Name, latest.Status, newest.Revision,
			r.releaseNamespace(), r.releaseName(), newest.Status)
	}
	if why := r.untested(latest); why != "" {
		return nil, why
	}
	return &stuck{
		release: r, kind: Status, record: newest,
		why: fmt.Sprintf("revision %d of Helm release %s is deployed, and Ready is Unknown since %s (%s)", newest.Revision,
			r.releaseName(), text.Elapsed(s.age(ready.LastTransitionTime.Time)), ready.Reason),
		what: "set the condition Ready to True: " + deployedMessage(latest),
	}, ""
}

// reported is a condition, explained where there is more to say than its controller does.
func reported(c metav1.Condition) string {
	says := fmt.Sprintf("%s is %s, as its controller reports (%s): %s", c.Type, c.Status, c.Reason, c.Message)
	if explained := explain.RejectedStrategy(c.Message); explained != "" {
		says += ": " + explained
	}
	return says
}

// atWork says why the controller of a release may be about to report Ready; empty: it is not.
func (s search) atWork(r helmRelease, ready metav1.Condition) string {
	if r.Status.ObservedGeneration != r.Generation {
		return fmt.Sprintf("its controller is at work: it has observed generation %d, and the object is at generation %d",
			r.Status.ObservedGeneration, r.Generation)
	}
	for _, c := range []metav1.Condition{ready, r.condition(conditionReconciling)} {
		if c.Type == "" || c.Type == conditionReconciling && c.Status != metav1.ConditionTrue {
			continue
		}
		if since := s.age(c.LastTransitionTime.Time); c.LastTransitionTime.IsZero() || since < s.options.Threshold {
			return fmt.Sprintf("its controller has set %s to %s %s ago (%s), and has until that is %s", c.Type, c.Status,
				text.Elapsed(since), c.Reason, text.Elapsed(s.options.Threshold))
		}
	}
	return ""
}

// age is how long ago a time was; 0 where it is not known.
func (s search) age(at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return s.now.Sub(at)
}

// deployedMessage says what is deployed.
func deployedMessage(s snapshot) string {
	return fmt.Sprintf("Helm release %s/%s.v%d with chart %s@%s is deployed", s.Namespace, s.Name, s.Version, s.ChartName,
		s.ChartVersion)
}
