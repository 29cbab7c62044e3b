package caph

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// newerCondition is how v1.1 names a condition in status.v1beta2: its type, the reason where it is true, and the
// reasons where it is false that have other names there.
type newerCondition struct {
	kind, yes string
	reasons   map[string]string
}

var newerConditions = map[clusterv1.ConditionType]newerCondition{
	api.HCloudTokenAvailable: {string(api.HCloudTokenAvailable), "Available", map[string]string{
		api.HCloudCredentialsInvalid: "Invalid", api.HetznerSecretUnreachable: "SecretUnreachable"}},

	api.NetworkReady: {string(api.NetworkReady), "Ready", map[string]string{
		api.NetworkReconcileFailed: "ReconcilingFailed"}},
	api.LoadBalancerReady: {string(api.LoadBalancerReady), "Ready", map[string]string{
		api.LoadBalancerCreateFailed: "CreationFailed", api.LoadBalancerUpdateFailed: "UpdateFailed",
		api.LoadBalancerDeleteFailed: "DeletionFailed", api.LoadBalancerServiceSyncFailed: "SyncingServicesFailed",
		api.LoadBalancerFailedToOwn: "OwningFailed"}},
	api.PlacementGroupsSynced: {string(api.PlacementGroupsSynced), "Synced", map[string]string{
		api.PlacementGroupsSyncFailed: "SyncingFailed"}},
	api.ControlPlaneEndpointSet: {string(api.ControlPlaneEndpointSet), "Set", map[string]string{
		api.ControlPlaneEndpointNotSet: "NotSet"}},
	api.TargetClusterReady: {string(api.TargetClusterReady), "Ready", map[string]string{
		api.TargetClusterCreateFailed: "CreationFailed"}},
	api.TargetClusterSecretReady: {string(api.TargetClusterSecretReady), "Ready", map[string]string{
		api.TargetSecretSyncFailed: "SyncingSecretFailed", api.TargetClusterControlPlaneNotReady: "ControlPlaneNotReady"}},

	api.BootstrapReady: {"ServerCreated", "", map[string]string{api.BootstrapNotReady: "WaitingForBootstrapData"}},
	api.ServerCreateSucceeded: {"ServerCreated", "Created", map[string]string{
		api.ServerCreateFailed: "CreationFailed", api.ServerCreateFailedIrrecoverable: "CreationFailedIrrecoverably",
		api.ServerLimitExceeded:                  "CreationFailed",
		api.InstanceHasNonExistingPlacementGroup: "PlacementGroupNotFound"}},
	api.ServerProvisioned: {string(api.ServerProvisioned), "Provisioned", map[string]string{
		api.ProvisioningServer: "Provisioning"}},
	api.ServerAvailable: {string(api.ServerAvailable), "Available", map[string]string{
		api.NoHCloudServerFound: "NotFound", api.NetworkAttachFailed: "AttachingToNetworkFailed",
		api.LoadBalancerAttachFailed: "AttachingToLoadBalancerFailed", api.ServerTerminating: "Deleting"}},
}

// newer writes an object's conditions into its status.v1beta2, too, as v1.1 does: Ready sums them up.
func newer(status *api.V1Beta2Status, conditions clusterv1.Conditions, generation int64) *api.V1Beta2Status {
	if status == nil {
		status = &api.V1Beta2Status{}
	}
	set := func(kind string, yes bool, reason, message string) {
		is := metav1.ConditionFalse
		if yes {
			is = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: reason, Message: message,
			ObservedGeneration: generation})
	}
	for _, c := range conditions {
		as, known := newerConditions[c.Type]
		switch yes := c.Status == corev1.ConditionTrue; {
		case !known || yes && as.yes == "":
		case yes:
			set(as.kind, true, as.yes, "")
		default:
			set(as.kind, false, cmp.Or(as.reasons[c.Reason], c.Reason), c.Message)
		}
	}
	slices.SortFunc(status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	var not []string
	for _, c := range status.Conditions {
		if c.Type != string(clusterv1.ReadyCondition) && c.Status != metav1.ConditionTrue {
			not = append(not, "* "+c.Type+": "+cmp.Or(c.Message, c.Reason))
		}
	}
	if len(not) > 0 {
		set("Ready", false, "NotReady", strings.Join(not, "\n"))
	} else {
		set("Ready", true, "Ready", "")
	}
	return status
}
