package caph

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/patch"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// machineReconciler reconciles HCloudMachines.
type machineReconciler struct {
	reconciler
}

// machineScope is one pass over one HCloudMachine.
type machineScope struct {
	*machineReconciler
	cloud         *hcloud.Client
	secret        map[string][]byte // the Hetzner secret's data
	cluster       *clusterv1.Cluster
	infra         *api.HetznerCluster
	machine       *clusterv1.Machine
	hcloudMachine *api.HCloudMachine
}

func (r *machineReconciler) setup(ctx context.Context, mgr ctrl.Manager, watchFilter string, workers int) error {
	log := ctrl.LoggerFrom(ctx)
	clusterToMachines, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &api.HCloudMachineList{}, mgr.GetScheme())
	if err != nil {
		return fmt.Errorf("mapping Clusters to HCloudMachines: %w", err)
	}
	notPaused := predicates.ResourceNotPausedAndHasFilterLabel(mgr.GetScheme(), log, watchFilter)
	own, cluster := significant(), []predicate.Predicate{notPaused}
	if r.follows.onlyChanges {
		own, cluster = changed(), append(cluster, changedForMachines())
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("hcloudmachine").
		WithOptions(r.options(workers)).
		For(&api.HCloudMachine{}, builder.WithPredicates(notPaused, own)).
		Watches(&clusterv1.Machine{},
			handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(api.GroupVersion.WithKind("HCloudMachine"))),
			builder.WithPredicates(notPaused, own)).
		// Its status matters: it names network, load balancer and placement groups.
		Watches(&api.HetznerCluster{}, handler.EnqueueRequestsFromMapFunc(r.machinesOf),
			builder.WithPredicates(cluster...)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(clusterToMachines),
			builder.WithPredicates(notPaused, predicates.ClusterPausedTransitionsOrInfrastructureReady(mgr.GetScheme(), log))).
		Complete(r)
}

// machinesOf names the HCloudMachines of a HetznerCluster.
func (r *machineReconciler) machinesOf(ctx context.Context, object client.Object) []reconcile.Request {
	infra, ok := object.(*api.HetznerCluster)
	if !ok || !infra.DeletionTimestamp.IsZero() {
		return nil
	}
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err != nil || cluster == nil {
		return nil
	}
	machines := &api.HCloudMachineList{}
	if err := r.List(ctx, machines, client.InNamespace(infra.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing the HCloudMachines of a HetznerCluster", "HetznerCluster", infra.Name)
		return nil
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&machines.Items[i])})
	}
	return requests
}

// Reconcile does one pass over an HCloudMachine.
func (r *machineReconciler) Reconcile(ctx context.Context, request reconcile.Request) (_ reconcile.Result, err error) {
	if skipped, err := r.skipped(ctx, request.Namespace); err != nil || skipped {
		return reconcile.Result{}, err
	}
	hcloudMachine := &api.HCloudMachine{}
	if err := r.Get(ctx, request.NamespacedName, hcloudMachine); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	log := ctrl.LoggerFrom(ctx)
	machine, err := util.GetOwnerMachine(ctx, r.Client, hcloudMachine.ObjectMeta)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting the Machine that owns HCloudMachine %s: %w", request, err)
	}
	if machine == nil {
		log.Info("Waiting: the Machine's controller has not set its ownerRef on the HCloudMachine")
		return reconcile.Result{}, nil
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, machine.ObjectMeta)
	if err != nil || cluster.Spec.InfrastructureRef == nil {
		log.Info("Waiting: the Machine has no cluster label, or its Cluster does not exist or has no infrastructure", "error",
			err)
		return reconcile.Result{}, nil
	}
	if annotations.IsPaused(cluster, hcloudMachine) {
		log.Info("Paused, not reconciling")
		return reconcile.Result{}, nil
	}
	infra := &api.HetznerCluster{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: hcloudMachine.Namespace, Name: cluster.Spec.InfrastructureRef.Name},
		infra); err != nil {
		log.Info("Waiting: the HetznerCluster is not there", "error", err)
		return reconcile.Result{}, nil
	}

	helper, err := patch.NewHelper(hcloudMachine, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer func() {
		if r.follows.stopsUnauthorized && unauthorized(err) {
			err = nil // the condition has it
		}
		conditions.SetSummary(hcloudMachine)
		if r.follows.newerConditions {
			status := &hcloudMachine.Status
			status.V1Beta2 = newer(status.V1Beta2, status.Conditions, hcloudMachine.Generation)
		}
		if patchErr := helper.Patch(ctx, hcloudMachine); patchErr != nil {
			err = errors.Join(err, fmt.Errorf("patching HCloudMachine %s: %w", request, patchErr))
		}
	}()

	token, secret, result, err := r.credentials(ctx, infra, hcloudMachine)
	if token == "" {
		return result, err
	}
	conditions.MarkTrue(hcloudMachine, api.HCloudTokenAvailable)
	if r.held(hcloudMachine) {
		return r.after(rateLimitPoll), nil
	}

	s := &machineScope{
		machineReconciler: r, cloud: r.hetzner(token), secret: secret.Data,
		cluster: cluster, infra: infra, machine: machine, hcloudMachine: hcloudMachine,
	}
	if !hcloudMachine.DeletionTimestamp.IsZero() {
		result, err := s.delete(ctx)
		if err == nil && result.IsZero() {
			controllerutil.RemoveFinalizer(hcloudMachine, api.MachineFinalizer)
		}
		return result, err
	}
	if hcloudMachine.Status.BootState == api.BootStateProvisioningFailed {
		log.Info("Its provisioning has failed: Cluster API replaces the machine")
		return reconcile.Result{}, nil
	}
	if controllerutil.AddFinalizer(hcloudMachine, api.MachineFinalizer) {
		// Before a server is created: a deletion must be able to find it.
		if err := helper.Patch(ctx, hcloudMachine); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding the finalizer to HCloudMachine %s: %w", request, err)
		}
		if helper, err = patch.NewHelper(hcloudMachine, r.Client); err != nil {
			return reconcile.Result{}, err
		}
	}
	return s.ensure(ctx)
}
