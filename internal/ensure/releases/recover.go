package releases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/internal/client/kube"
)

// reasonRecovered is the reason of a condition Ready that Slipway set.
const reasonRecovered = "StatusRecovered"

// RecoverWithin bounds the requests that recover one HelmRelease. An interrupted run ends after the one that it works
// on, so that none stays suspended.
const RecoverWithin = time.Minute

// Errors of a release that another process works on while it is recovered.
var (
	errOthers = errors.New("helm's record was written meanwhile: another process works on the release")
	errTaken  = errors.New("the HelmRelease is gone, or its annotation " + AuditAnnotation + " was changed meanwhile")
)

// writer writes HelmReleases.
type writer struct {
	cluster *kube.Cluster
	now     time.Time
	by      string
}

// fields are a part of an object, as a merge patch has it.
type fields = map[string]any

// recover recovers one HelmRelease. Whoever has written it since it was examined wins.
func (w writer) recover(ctx context.Context, s stuck) (Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), RecoverWithin)
	defer cancel()
	do := w.recoverPending
	if s.kind == Status {
		do = w.recoverStatus
	}
	err := do(ctx, s)
	switch {
	case err == nil:
		return Recovered, nil
	case apierrors.IsConflict(err) || errors.Is(err, errOthers) || errors.Is(err, errTaken):
		return ChangedByOther, err
	default:
		return Failed, err
	}
}

// recoverPending suspends a HelmRelease, deletes the pending record and resumes the HelmRelease. helm-controller begins
// the operation again then.
func (w writer) recoverPending(ctx context.Context, s stuck) error {
	audit := s.begun
	if audit == nil {
		// Suspending is a generation more, and so is resuming.
		audit = w.audit(s, s.release.Generation+1)
		audit.Record, audit.RecordUID = s.record.Name, s.record.UID
		if _, err := w.patch(ctx, s.release, fields{"suspend": true}, audit.String()); err != nil {
			return fmt.Errorf("suspend it: %w", err)
		}
	}
	if err := w.deletePending(ctx, s.release, audit); err != nil {
		return w.takeBack(ctx, s, *audit, fields{"suspend": nil}, err)
	}
	done := *audit
	done.State = Done
	err := w.update(ctx, s.release, *audit, func(r helmRelease) (fields, any) {
		done.Generation = r.Generation + 1
		return fields{"suspend": nil}, done.String()
	})
	if err != nil {
		return fmt.Errorf("resume it (it is suspended until then; the next run of recover-releases resumes it): %w", err)
	}
	return nil
}

// deletePending deletes the record of a recovery if it is there, is still pending and is still the newest.
func (w writer) deletePending(ctx context.Context, r helmRelease, audit *Audit) error {
	records, err := w.cluster.ReleaseRecords(ctx, r.storageNamespace(), r.releaseName())
	if err != nil {
		return err
	}
	for i, record := range records {
		if record.Name != audit.Record {
			continue
		}
		if record.UID != audit.RecordUID || !record.Pending() || i != len(records)-1 {
			return errOthers
		}
		if err := w.cluster.RemoveReleaseRecord(ctx, record); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// recoverStatus sets the condition Ready of a HelmRelease whose release is deployed.
func (w writer) recoverStatus(ctx context.Context, s stuck) error {
	if s.release.condition(conditionReady).Status == metav1.ConditionTrue { // an earlier run has set it
		return w.finish(ctx, s, *s.begun)
	}
	audit := w.audit(s, s.release.Generation)
	now, err := w.patch(ctx, s.release, nil, audit.String())
	if err != nil {
		return fmt.Errorf("write the annotation %s: %w", AuditAnnotation, err)
	}
	if err := w.setReady(ctx, s, now); err != nil {
		return w.takeBack(ctx, s, *audit, nil, fmt.Errorf("set the condition Ready: %w", err))
	}
	return w.finish(ctx, s, *audit)
}

// finish notes that a recovery is done.
func (w writer) finish(ctx context.Context, s stuck, audit Audit) error {
	done := audit
	done.State = Done
	return w.update(ctx, s.release, audit, func(helmRelease) (fields, any) { return nil, done.String() })
}

// setReady sets the condition in the object's status and leaves the others as they are. The object has to be as it is
// known.
func (w writer) setReady(ctx context.Context, s stuck, o *unstructured.Unstructured) error {
	latest, _ := s.release.latest()
	was := s.release.condition(conditionReady)
	ready, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionTrue, Reason: reasonRecovered, ObservedGeneration: o.GetGeneration(),
		LastTransitionTime: metav1.NewTime(w.now),
		Message: fmt.Sprintf("%s; set by %s, as Ready was %s (%s) since %s", deployedMessage(latest), w.by, was.Status,
			was.Reason, was.LastTransitionTime.UTC().Format(time.RFC3339)),
	})
	if err != nil {
		return err
	}
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return err
	}
	for i, c := range conditions {
		if c, ok := c.(fields); ok && c["type"] == conditionReady {
			conditions[i] = ready
		}
	}
	body, err := json.Marshal(fields{"metadata": fields{"resourceVersion": o.GetResourceVersion()},
		"status": fields{"conditions": conditions}})
	if err != nil {
		return err
	}
	return w.cluster.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, body),
		client.FieldOwner(kube.FieldManager))
}

// takeBack removes the annotation of a recovery that cannot be done, and whatever else it changed in the spec; the
// error is the reason for that.
func (w writer) takeBack(ctx context.Context, s stuck, audit Audit, spec fields, reason error) error {
	var before any
	if value, ok := s.release.Annotations[AuditAnnotation]; ok && s.begun == nil {
		before = value // of an earlier generation
	}
	err := w.update(ctx, s.release, audit, func(helmRelease) (fields, any) { return spec, before })
	if err != nil && !errors.Is(err, errTaken) {
		return fmt.Errorf("%w; the annotation %s could not be taken back either, the next run does that: %v", reason,
			AuditAnnotation, err)
	}
	return reason
}

// audit is the annotation of a recovery that begins.
func (w writer) audit(s stuck, generation int64) *Audit {
	return &Audit{State: Begun, Kind: s.kind, What: s.what, Generation: generation, At: w.now.UTC(), By: w.by}
}

// update patches an object as long as its annotation is that of the recovery, as often as another process writes it at
// the same time. One that has the annotation no longer, or is gone, is left as it is: errTaken.
func (w writer) update(ctx context.Context, r helmRelease, audit Audit, change func(helmRelease) (fields, any)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		o := w.object(r)
		if err := w.cluster.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			if apierrors.IsNotFound(err) {
				return errTaken
			}
			return err
		}
		is, err := fromUnstructured(o)
		if err != nil {
			return err
		}
		if now, err := auditOf(is.Annotations); err != nil || is.UID != r.UID || !now.same(audit) {
			return errTaken
		}
		spec, annotation := change(is)
		_, err = w.patch(ctx, is, spec, annotation)
		return err
	})
}

// patch writes the annotation, nil removes it, and a part of the spec, if the object is as it was read.
func (w writer) patch(ctx context.Context, r helmRelease, spec fields, annotation any) (*unstructured.Unstructured,
	error) {
	content := fields{"metadata": fields{"resourceVersion": r.ResourceVersion,
		"annotations": fields{AuditAnnotation: annotation}}}
	if spec != nil {
		content["spec"] = spec
	}
	body, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	o := w.object(r)
	err = w.cluster.Patch(ctx, o, client.RawPatch(types.MergePatchType, body), client.FieldOwner(kube.FieldManager))
	return o, err
}

func (w writer) object(r helmRelease) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}
