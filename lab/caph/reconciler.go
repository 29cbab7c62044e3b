package caph

import (
	"context"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
	"github.com/slipway-k8s/slipway/lab/standin"
)

// reconciler has the common parts of the three controllers.
type reconciler struct {
	client.Client
	reader    client.Reader // past the cache
	hetzner   Hetzner
	events    record.EventRecorder
	pace      standin.TimeScale
	rateLimit time.Duration // pause after a 429, before scaling (--rate-limit)
	follows   release
}

// after triggers another pass after a scaled interval.
func (r *reconciler) after(d time.Duration) reconcile.Result {
	return reconcile.Result{RequeueAfter: r.pace.Of(d)}
}

// skipped says whether a namespace's objects are to be left alone.
func (r *reconciler) skipped(ctx context.Context, namespace string) (bool, error) {
	if !r.follows.skipsNamespaces {
		return false, nil
	}
	of := &metav1.PartialObjectMetadata{}
	of.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Get(ctx, client.ObjectKey{Name: namespace}, of); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return of.Annotations[api.SkipNamespace] == "true", nil
}

// held says whether object waits for the end of a rate limit. After the wait the condition is true again.
func (r *reconciler) held(object conditions.Setter) bool {
	reachable := conditions.Get(object, api.HetznerAPIReachable)
	if reachable == nil || reachable.Status != corev1.ConditionFalse {
		return false
	}
	if time.Since(reachable.LastTransitionTime.Time) < r.pace.Of(r.rateLimit) {
		return true
	}
	conditions.MarkTrue(object, api.HetznerAPIReachable)
	return false
}

// noteError sets the conditions for errors of the API itself: a rate limit, a refused token. It returns err.
func noteError(object conditions.Setter, call string, err error) error {
	switch {
	case hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded):
		conditions.MarkFalse(object, api.HetznerAPIReachable, api.RateLimitExceeded, clusterv1.ConditionSeverityWarning,
			"exceeded hcloud rate limit with calling hcloud function %q", call)
	case unauthorized(err):
		conditions.MarkFalse(object, api.HCloudTokenAvailable, api.HCloudCredentialsInvalid, clusterv1.ConditionSeverityError,
			"wrong hcloud token")
	}
	return err
}

// unauthorized recognises a refused token as the original does, by the text of the error. Of an API that gives its
// answers an X-Correlation-Id, as Hetzner's does, the text ends with that, so that the original never recognises it.
func unauthorized(err error) bool {
	return err != nil && strings.Contains(err.Error(), "(unauthorized)")
}

// options are a controller's: the original's number of workers, and the usual
// backoff (5 ms to 1000 s) with its end scaled.
func (r *reconciler) options(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
			5*time.Millisecond, r.pace.Of(1000*time.Second)),
	}
}

// changed passes updates that change more than the status.
func changed() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !sameMeta(e.ObjectOld, e.ObjectNew)
	}}
}

// changedForMachines passes updates of a HetznerCluster that change what a server is created from: not its conditions,
// and not which servers are behind its load balancer and in its network and groups.
func changedForMachines() predicate.Predicate {
	made := func(object client.Object) api.HetznerClusterStatus {
		infra, ok := object.(*api.HetznerCluster)
		if !ok {
			return api.HetznerClusterStatus{}
		}
		status := infra.DeepCopy().Status
		status.Conditions, status.HCloudPlacementGroups = nil, nil
		if status.ControlPlaneLoadBalancer != nil {
			status.ControlPlaneLoadBalancer.Targets = nil
		}
		if status.Network != nil {
			status.Network.AttachedServers = nil
		}
		return status
	}
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !sameMeta(e.ObjectOld, e.ObjectNew) ||
			!equality.Semantic.DeepEqual(made(e.ObjectOld), made(e.ObjectNew))
	}}
}

// significant passes updates that change more than the status, and resyncs.
func significant() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetResourceVersion() == e.ObjectNew.GetResourceVersion() ||
			e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
			!sameMeta(e.ObjectOld, e.ObjectNew)
	}}
}

// sameMeta compares what controllers act on in two objects' metadata.
func sameMeta(a, b client.Object) bool {
	return equality.Semantic.DeepEqual(a.GetLabels(), b.GetLabels()) &&
		equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) &&
		equality.Semantic.DeepEqual(a.GetFinalizers(), b.GetFinalizers()) &&
		a.GetDeletionTimestamp().IsZero() == b.GetDeletionTimestamp().IsZero()
}
