package caph

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// templateReconciler maintains the status of HCloudMachineTemplates: the capacity of a machine, and the template's
// owner.
type templateReconciler struct {
	reconciler
}

func (r *templateReconciler) setup(ctx context.Context, mgr ctrl.Manager, watchFilter string) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hcloudmachinetemplate").
		WithOptions(r.options(1)).
		For(&api.HCloudMachineTemplate{}, builder.WithPredicates(
			predicates.ResourceNotPausedAndHasFilterLabel(mgr.GetScheme(), ctrl.LoggerFrom(ctx), watchFilter),
			significant(),
		)).
		Complete(r)
}

// Reconcile does one pass over an HCloudMachineTemplate.
func (r *templateReconciler) Reconcile(ctx context.Context, request reconcile.Request) (_ reconcile.Result, err error) {
	if skipped, err := r.skipped(ctx, request.Namespace); err != nil || skipped {
		return reconcile.Result{}, err
	}
	template := &api.HCloudMachineTemplate{}
	if err := r.Get(ctx, request.NamespacedName, template); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// A control plane's owner is its Cluster, set by the control plane's controller; that
	// of workers comes with their MachineSet.
	cluster, err := util.GetOwnerCluster(ctx, r.Client, template.ObjectMeta)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting the Cluster that owns HCloudMachineTemplate %s: %w", request, err)
	}
	if cluster == nil || cluster.Spec.InfrastructureRef == nil || annotations.IsPaused(cluster, template) ||
		!template.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	infra := &api.HetznerCluster{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: template.Namespace, Name: cluster.Spec.InfrastructureRef.Name},
		infra); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}

	helper, err := patch.NewHelper(template, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer func() {
		conditions.SetSummary(template)
		if r.follows.newerConditions {
			template.Status.V1Beta2 = newer(template.Status.V1Beta2, template.Status.Conditions, template.Generation)
		}
		if patchErr := helper.Patch(ctx, template); patchErr != nil {
			err = errors.Join(err, fmt.Errorf("patching HCloudMachineTemplate %s: %w", request, patchErr))
		}
	}()
	template.Status.OwnerType = "Cluster"
	token, _, result, err := r.credentials(ctx, infra, template)
	if token == "" {
		return result, err
	}
	conditions.MarkTrue(template, api.HCloudTokenAvailable)
	if r.held(template) {
		return r.after(rateLimitPoll), nil
	}
	types, err := r.hetzner(token).ServerType.All(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("listing server types: %w", noteError(template, "ListServerTypes", err))
	}
	for _, serverType := range types {
		if serverType.Name == template.Spec.Template.Spec.Type {
			template.Status.Capacity = corev1.ResourceList{
				corev1.ResourceCPU:    *resource.NewQuantity(int64(serverType.Cores), resource.DecimalSI),
				corev1.ResourceMemory: *resource.NewQuantity(int64(float64(serverType.Memory)*1e9), resource.DecimalSI),
			}
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{}, fmt.Errorf("HCloudMachineTemplate %s: server type %q does not exist", request,
		template.Spec.Template.Spec.Type)
}
