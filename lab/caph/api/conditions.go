package api

import clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"

// Condition types, as the original sets them.
const (
	HCloudTokenAvailable     clusterv1.ConditionType = "HCloudTokenAvailable"
	HetznerAPIReachable      clusterv1.ConditionType = "HetznerAPIReachable"
	NetworkReady             clusterv1.ConditionType = "NetworkReady"
	LoadBalancerReady        clusterv1.ConditionType = "LoadBalancerReady"
	PlacementGroupsSynced    clusterv1.ConditionType = "PlacementGroupsSynced"
	ControlPlaneEndpointSet  clusterv1.ConditionType = "ControlPlaneEndpointSet"
	TargetClusterReady       clusterv1.ConditionType = "TargetClusterReady"
	TargetClusterSecretReady clusterv1.ConditionType = "TargetClusterSecretReady"

	BootstrapReady        clusterv1.ConditionType = "BootstrapReady"
	ServerCreateSucceeded clusterv1.ConditionType = "ServerCreateSucceeded"
	ServerAvailable       clusterv1.ConditionType = "ServerAvailable"
	ServerProvisioned     clusterv1.ConditionType = "ServerProvisioned" // v1.1.0
)

// Reasons of conditions that are false.
const (
	HetznerSecretUnreachable = "HetznerSecretUnreachable"
	HCloudCredentialsInvalid = "HCloudCredentialsInvalid"
	RateLimitExceeded        = "RateLimitExceeded"

	NetworkReconcileFailed        = "NetworkReconcileFailed"
	LoadBalancerCreateFailed      = "LoadBalancerCreateFailed"
	LoadBalancerUpdateFailed      = "LoadBalancerUpdateFailed"
	LoadBalancerDeleteFailed      = "LoadBalancerDeleteFailed"
	LoadBalancerServiceSyncFailed = "LoadBalancerServiceSyncFailed"
	LoadBalancerFailedToOwn       = "LoadBalancerFailedToOwn"
	LoadBalancerAttachFailed      = "LoadBalancerAttachFailed"
	PlacementGroupsSyncFailed     = "PlacementGroupsSyncFailed"
	ControlPlaneEndpointNotSet    = "ControlPlaneEndpointNotSet"

	KubeConfigNotFound                = "KubeConfigNotFound"
	TargetClusterCreateFailed         = "TargetClusterCreateFailed"
	TargetClusterControlPlaneNotReady = "TargetClusterControlPlaneNotReady"
	TargetSecretSyncFailed            = "TargetSecretSyncFailed"

	BootstrapNotReady                    = "BootstrapNotReady"
	ImageNotFound                        = "ImageNotFound"
	ImageAmbiguous                       = "ImageAmbiguous"
	ServerTypeNotFound                   = "ServerTypeNotFound"
	SSHKeyNotFound                       = "SSHKeyNotFound"
	ServerLimitExceeded                  = "ServerLimitExceeded"
	ServerCreateFailed                   = "ServerCreateFailedReason" // sic, the original's spelling
	ServerCreateFailedIrrecoverable      = "ServerCreateFailedIrrecoverableError"
	ServerNotFound                       = "ServerNotFound"
	NoHCloudServerFound                  = "NoHCloudServerFound" // v1.1.0
	ProvisioningServer                   = "ProvisioningServer"  // v1.1.0
	BootingToRealOS                      = "BootingToRealOS"     // v1.1.0
	InstanceHasNonExistingPlacementGroup = "InstanceHasNonExistingPlacementGroup"
	NetworkAttachFailed                  = "NetworkAttachFailed"
	ServerOff                            = "ServerOff"
	ServerStarting                       = "ServerStarting"
	ServerTerminating                    = "InstanceTerminated"
)
