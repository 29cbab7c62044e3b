package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
)

// ClusterFinalizer keeps a HetznerCluster until its load balancer, network and placement groups are deleted.
const ClusterFinalizer = "infrastructure.cluster.x-k8s.io/hetznercluster"

// HetznerCluster is a cluster's share of a Hetzner Cloud project: network, load balancer, placement groups.
type HetznerCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HetznerClusterSpec   `json:"spec,omitempty"`
	Status HetznerClusterStatus `json:"status,omitempty"`
}

// HetznerClusterList is a list of HetznerCluster.
type HetznerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HetznerCluster `json:"items"`
}

// HetznerClusterSpec is the desired state of a HetznerCluster.
type HetznerClusterSpec struct {
	HCloudNetwork            HCloudNetworkSpec          `json:"hcloudNetwork,omitempty"`
	ControlPlaneRegions      []string                   `json:"controlPlaneRegions"`
	SSHKeys                  ClusterSSHKeys             `json:"sshKeys"`
	ControlPlaneEndpoint     *clusterv1.APIEndpoint     `json:"controlPlaneEndpoint,omitempty"`
	ControlPlaneLoadBalancer LoadBalancerSpec           `json:"controlPlaneLoadBalancer,omitempty"`
	HCloudPlacementGroups    []HCloudPlacementGroupSpec `json:"hcloudPlacementGroups,omitempty"`
	HetznerSecret            HetznerSecretRef           `json:"hetznerSecretRef"`
	// SkipCreatingHetznerSecretInWorkloadCluster, when true, keeps the token out of the workload cluster. (The CRD's own
	// description says the opposite; the original's code does this.)
	SkipCreatingHetznerSecretInWorkloadCluster bool `json:"skipCreatingHetznerSecretInWorkloadCluster,omitempty"`
}

// HCloudNetworkSpec is the private network; immutable after its creation.
type HCloudNetworkSpec struct {
	Enabled         bool   `json:"enabled"`
	CIDRBlock       string `json:"cidrBlock,omitempty"`
	SubnetCIDRBlock string `json:"subnetCidrBlock,omitempty"`
	NetworkZone     string `json:"networkZone,omitempty"`
}

// ClusterSSHKeys are the keys that every server gets, and the one for bare metal
// rescue systems, which the stand-in ignores.
type ClusterSSHKeys struct {
	HCloud               []SSHKey              `json:"hcloud,omitempty"`
	RobotRescueSecretRef *RobotRescueSecretRef `json:"robotRescueSecretRef,omitempty"`
}

// SSHKey names a key of the Hetzner project.
type SSHKey struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint,omitempty"`
}

// RobotRescueSecretRef names the secret with the key for bare metal rescue systems.
type RobotRescueSecretRef struct {
	Name string               `json:"name"`
	Key  RobotRescueSecretKey `json:"key"`
}

// RobotRescueSecretKey names the data keys of that secret.
type RobotRescueSecretKey struct {
	Name       string `json:"name"`
	PublicKey  string `json:"publicKey"`
	PrivateKey string `json:"privateKey"`
}

// LoadBalancerSpec is the load balancer before the control plane.
type LoadBalancerSpec struct {
	Enabled       bool                      `json:"enabled,omitempty"`
	Name          *string                   `json:"name,omitempty"`
	Algorithm     string                    `json:"algorithm,omitempty"`
	Type          string                    `json:"type,omitempty"`
	Port          int                       `json:"port,omitempty"`
	ExtraServices []LoadBalancerServiceSpec `json:"extraServices,omitempty"`
	Region        string                    `json:"region,omitempty"`
}

// LoadBalancerServiceSpec is one more port that the load balancer serves.
type LoadBalancerServiceSpec struct {
	Protocol        string `json:"protocol,omitempty"`
	ListenPort      int    `json:"listenPort,omitempty"`
	DestinationPort int    `json:"destinationPort,omitempty"`
}

// HCloudPlacementGroupSpec is a placement group; its name in Hetzner's API is prefixed with the HetznerCluster's.
type HCloudPlacementGroupSpec struct {
	Name string `json:"name"`
	Type string `json:"type,omitempty"`
}

// HetznerSecretRef names the Secret with the API token.
type HetznerSecretRef struct {
	Name string              `json:"name"`
	Key  HetznerSecretKeyRef `json:"key"`
}

// HetznerSecretKeyRef names the data keys of that secret (not their values).
type HetznerSecretKeyRef struct {
	HCloudToken          string `json:"hcloudToken,omitempty"`
	HetznerRobotUser     string `json:"hetznerRobotUser,omitempty"`
	HetznerRobotPassword string `json:"hetznerRobotPassword,omitempty"`
	SSHKey               string `json:"sshKey,omitempty"`
}

// HetznerClusterStatus is the observed state.
type HetznerClusterStatus struct {
	Ready                    bool                         `json:"ready"`
	Network                  *NetworkStatus               `json:"networkStatus,omitempty"`
	ControlPlaneLoadBalancer *LoadBalancerStatus          `json:"controlPlaneLoadBalancer,omitempty"`
	HCloudPlacementGroups    []HCloudPlacementGroupStatus `json:"hcloudPlacementGroups,omitempty"`
	FailureDomains           clusterv1.FailureDomains     `json:"failureDomains,omitempty"`
	Conditions               clusterv1.Conditions         `json:"conditions,omitempty"`
	V1Beta2                  *V1Beta2Status               `json:"v1beta2,omitempty"`
}

// NetworkStatus is the private network as last read.
type NetworkStatus struct {
	ID              int64   `json:"id,omitempty"`
	AttachedServers []int64 `json:"attachedServers,omitempty"`
}

// LoadBalancerStatus is the load balancer as last read, before that pass changed it.
type LoadBalancerStatus struct {
	ID         int64                `json:"id,omitempty"`
	IPv4       string               `json:"ipv4,omitempty"`
	IPv6       string               `json:"ipv6,omitempty"`
	InternalIP string               `json:"internalIP,omitempty"`
	Targets    []LoadBalancerTarget `json:"targets,omitempty"`
	Protected  bool                 `json:"protected,omitempty"`
}

// LoadBalancerTarget is one target, a server or an address.
type LoadBalancerTarget struct {
	Type     string `json:"type"`
	ServerID int64  `json:"serverID,omitempty"`
	IP       string `json:"ip,omitempty"`
}

// HCloudPlacementGroupStatus is a placement group as last read, its name without the prefix.
type HCloudPlacementGroupStatus struct {
	ID      int64   `json:"id,omitempty"`
	Servers []int64 `json:"servers,omitempty"`
	Name    string  `json:"name,omitempty"`
	Type    string  `json:"type,omitempty"`
}

// GetConditions returns the status conditions.
func (c *HetznerCluster) GetConditions() clusterv1.Conditions { return c.Status.Conditions }

// SetConditions replaces the status conditions.
func (c *HetznerCluster) SetConditions(conditions clusterv1.Conditions) {
	c.Status.Conditions = conditions
}

// TagKey is the label that everything of this cluster carries in Hetzner's API, with the value "owned".
func (c *HetznerCluster) TagKey() string { return TagPrefix + c.Name }

// Tags are the labels of the cluster's resources.
func (c *HetznerCluster) Tags() map[string]string { return map[string]string{c.TagKey(): TagOwned} }
