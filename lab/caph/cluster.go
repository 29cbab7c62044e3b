package caph

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// clusterReconciler reconciles HetznerClusters.
type clusterReconciler struct {
	reconciler
	targets *targetClusters
}

// clusterScope is one pass over one HetznerCluster.
type clusterScope struct {
	*clusterReconciler
	cloud   *hcloud.Client
	secret  *corev1.Secret // the Hetzner secret
	cluster *clusterv1.Cluster
	infra   *api.HetznerCluster
}

func (r *clusterReconciler) setup(ctx context.Context, mgr ctrl.Manager, watchFilter string, workers int) error {
	log := ctrl.LoggerFrom(ctx)
	toInfra := util.ClusterToInfrastructureMapFunc(ctx, api.GroupVersion.WithKind("HetznerCluster"), mgr.GetClient(),
		&api.HetznerCluster{})
	return ctrl.NewControllerManagedBy(mgr).
		Named("hetznercluster").
		WithOptions(r.options(workers)).
		For(&api.HetznerCluster{}, builder.WithPredicates(
			predicates.ResourceNotPausedAndHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			predicates.ResourceIsNotExternallyManaged(mgr.GetScheme(), log),
			significant(),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(toInfra), builder.WithPredicates(
			predicates.ResourceNotPausedAndHasFilterLabel(mgr.GetScheme(), log, watchFilter),
			significant(),
		)).
		Complete(r)
}

// Reconcile does one pass over a HetznerCluster.
func (r *clusterReconciler) Reconcile(ctx context.Context, request reconcile.Request) (_ reconcile.Result, err error) {
	if skipped, err := r.skipped(ctx, request.Namespace); err != nil || skipped {
		return reconcile.Result{}, err
	}
	infra := &api.HetznerCluster{}
	if err := r.Get(ctx, request.NamespacedName, infra); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	log := ctrl.LoggerFrom(ctx)
	cluster, err := util.GetOwnerCluster(ctx, r.Client, infra.ObjectMeta)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting the Cluster that owns HetznerCluster %s: %w", request, err)
	}
	if cluster == nil {
		log.Info("Waiting: the Cluster's controller has not set its ownerRef on the HetznerCluster")
		return r.after(ownerPoll), nil
	}
	if annotations.IsPaused(cluster, infra) {
		log.Info("Paused, not reconciling")
		return reconcile.Result{}, nil
	}

	helper, err := patch.NewHelper(infra, r.Client)
	if err != nil {
		return reconcile.Result{}, err
	}
	defer func() {
		conditions.SetSummary(infra)
		if r.follows.newerConditions {
			infra.Status.V1Beta2 = newer(infra.Status.V1Beta2, infra.Status.Conditions, infra.Generation)
		}
		if patchErr := helper.Patch(ctx, infra); patchErr != nil {
			err = errors.Join(err, fmt.Errorf("patching HetznerCluster %s: %w", request, patchErr))
		}
	}()

	token, secret, result, err := r.credentials(ctx, infra, infra)
	if token == "" {
		return result, err
	}
	conditions.MarkTrue(infra, api.HCloudTokenAvailable)
	if r.held(infra) {
		return r.after(rateLimitPoll), nil
	}

	s := &clusterScope{clusterReconciler: r, cloud: r.hetzner(token), secret: secret, cluster: cluster, infra: infra}
	if !infra.DeletionTimestamp.IsZero() {
		return s.delete(ctx)
	}
	if controllerutil.AddFinalizer(infra, api.ClusterFinalizer) {
		// Before anything is created: a deletion must be able to find it.
		if err := helper.Patch(ctx, infra); err != nil {
			return reconcile.Result{}, fmt.Errorf("adding the finalizer to HetznerCluster %s: %w", request, err)
		}
		if helper, err = patch.NewHelper(infra, r.Client); err != nil {
			return reconcile.Result{}, err
		}
	}
	return s.normal(ctx)
}

func (s *clusterScope) normal(ctx context.Context) (reconcile.Result, error) {
	s.infra.Status.FailureDomains = clusterv1.FailureDomains{}
	for _, region := range s.infra.Spec.ControlPlaneRegions {
		s.infra.Status.FailureDomains[region] = clusterv1.FailureDomainSpec{ControlPlane: true}
	}
	if err := s.ensureNetwork(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if result, err := s.ensureLoadBalancer(ctx); err != nil || !result.IsZero() {
		return result, err
	}
	if err := s.ensurePlacementGroups(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s.setEndpoint()
	return s.reconcileTarget(ctx)
}

// setEndpoint fills the endpoint's host from the load balancer and with it makes the infrastructure ready.
func (s *clusterScope) setEndpoint() {
	notSet := func(message string) {
		conditions.MarkFalse(s.infra, api.ControlPlaneEndpointSet, api.ControlPlaneEndpointNotSet,
			clusterv1.ConditionSeverityWarning, "%s", message)
		s.infra.Status.Ready = false
	}
	endpoint := s.infra.Spec.ControlPlaneEndpoint
	if s.infra.Spec.ControlPlaneLoadBalancer.Enabled {
		ipv4 := s.infra.Status.ControlPlaneLoadBalancer.IPv4
		if ipv4 == noAddress {
			notSet("enabled LoadBalancer but load balancer not ready yet")
			return
		}
		if endpoint.Host == "" {
			endpoint.Host = ipv4
		}
		if endpoint.Port == 0 {
			endpoint.Port = int32(s.infra.Spec.ControlPlaneLoadBalancer.Port)
		}
	} else if endpoint == nil || endpoint.Host == "" || endpoint.Port == 0 {
		notSet("disabled LoadBalancer and not yet provided ControlPlane endpoint")
		return
	}
	conditions.MarkTrue(s.infra, api.ControlPlaneEndpointSet)
	s.infra.Status.Ready = true
}

// delete removes what the cluster created, after its machines: load balancer, network, placement groups.
func (s *clusterScope) delete(ctx context.Context) (reconcile.Result, error) {
	machines := &api.HCloudMachineList{}
	if err := s.List(ctx, machines, client.InNamespace(s.infra.Namespace),
		client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the machines of HetznerCluster %s: %w",
			client.ObjectKeyFromObject(s.infra), err)
	}
	if n := len(machines.Items); n > 0 {
		s.events.Eventf(s.infra, corev1.EventTypeNormal, "WaitingForMachineDeletion",
			"%d machines still there (first: %s), waiting with deletion of HetznerCluster", n, machines.Items[0].Name)
		return s.after(machinesPoll), nil
	}
	if err := s.release(ctx, s.secret, s.infra); err != nil {
		if apierrors.IsConflict(err) {
			return s.after(ownerPoll), nil
		}
		return reconcile.Result{}, fmt.Errorf("releasing the Hetzner secret: %w", err)
	}
	if err := s.deleteLoadBalancer(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if err := s.deleteNetwork(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if err := s.deletePlacementGroups(ctx); err != nil {
		return reconcile.Result{}, err
	}
	s.targets.stop(client.ObjectKeyFromObject(s.infra))
	controllerutil.RemoveFinalizer(s.infra, api.ClusterFinalizer)
	return reconcile.Result{}, nil
}
