package api

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
)

// MachineFinalizer keeps an HCloudMachine until its server is deleted.
const MachineFinalizer = "infrastructure.cluster.x-k8s.io/hcloudmachine"

// SkipNamespace is the annotation of a namespace whose objects CAPH leaves alone where its value is "true" (v1.0.9).
const SkipNamespace = "capi.syself.com/skip-namespace"

// Labels in Hetzner's API.
const (
	TagPrefix      = "caph-cluster-"     // + HetznerCluster's name
	TagOwned       = "owned"             // the value of the label above
	TagMachineName = "machine.caph-name" // HCloudMachine's name
	TagMachineType = "machine_type"      // control_plane or worker
	TagImageName   = "caph-image-name"   // on images: what imageName refers to
)

// States of a server's boot, as the original records them for servers of an image.
const (
	BootStateBootingToRealOS        = "BootingToRealOS"
	BootStateOperatingSystemRunning = "OperatingSystemRunning"
	BootStateProvisioningFailed     = "ProvisioningFailed"
)

// HCloudMachine is one server.
type HCloudMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HCloudMachineSpec   `json:"spec,omitempty"`
	Status HCloudMachineStatus `json:"status,omitempty"`
}

// HCloudMachineList is a list of HCloudMachine.
type HCloudMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCloudMachine `json:"items"`
}

// HCloudMachineSpec describes the server.
type HCloudMachineSpec struct {
	ProviderID         *string            `json:"providerID,omitempty"`
	Type               string             `json:"type"`
	ImageName          string             `json:"imageName"`
	SSHKeys            []SSHKey           `json:"sshKeys,omitempty"`
	PlacementGroupName *string            `json:"placementGroupName,omitempty"`
	PublicNetwork      *PublicNetworkSpec `json:"publicNetwork,omitempty"`
}

// PublicNetworkSpec says which public addresses a server gets. The fields are pointers, unlike the original's, because
// the CRD defaults them to true and only a pointer tells an explicit false from nothing.
type PublicNetworkSpec struct {
	EnableIPv4 *bool `json:"enableIPv4,omitempty"`
	EnableIPv6 *bool `json:"enableIPv6,omitempty"`
}

// HCloudMachineStatus is the server as last read.
type HCloudMachineStatus struct {
	Ready          bool                       `json:"ready,omitempty"`
	Addresses      []clusterv1.MachineAddress `json:"addresses,omitempty"`
	Region         string                     `json:"region,omitempty"`
	SSHKeys        []SSHKey                   `json:"sshKeys,omitempty"`
	InstanceState  *string                    `json:"instanceState,omitempty"`
	FailureReason  *string                    `json:"failureReason,omitempty"`
	FailureMessage *string                    `json:"failureMessage,omitempty"`
	Conditions     clusterv1.Conditions       `json:"conditions,omitempty"`
	// BootState and BootStateSince (v1.1.0) say how far the server's boot has come.
	BootState      string         `json:"bootState,omitempty"`
	BootStateSince *metav1.Time   `json:"bootStateSince,omitempty"`
	V1Beta2        *V1Beta2Status `json:"v1beta2,omitempty"`
}

// V1Beta2Status (v1.1.0) has the conditions as Cluster API's contract v1beta2 wants them.
type V1Beta2Status struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GetConditions returns the status conditions.
func (m *HCloudMachine) GetConditions() clusterv1.Conditions { return m.Status.Conditions }

// SetConditions replaces the status conditions.
func (m *HCloudMachine) SetConditions(conditions clusterv1.Conditions) {
	m.Status.Conditions = conditions
}

// HCloudMachineTemplate is what HCloudMachines are cloned from; its spec is immutable.
type HCloudMachineTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   HCloudMachineTemplateSpec   `json:"spec,omitempty"`
	Status HCloudMachineTemplateStatus `json:"status,omitempty"`
}

// HCloudMachineTemplateList is a list of HCloudMachineTemplate.
type HCloudMachineTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HCloudMachineTemplate `json:"items"`
}

// HCloudMachineTemplateSpec wraps the template.
type HCloudMachineTemplateSpec struct {
	Template HCloudMachineTemplateResource `json:"template"`
}

// HCloudMachineTemplateResource is a machine's metadata and spec.
type HCloudMachineTemplateResource struct {
	ObjectMeta clusterv1.ObjectMeta `json:"metadata,omitempty"`
	Spec       HCloudMachineSpec    `json:"spec"`
}

// HCloudMachineTemplateStatus is the capacity of machines of this template, for an autoscaler that scales from zero.
type HCloudMachineTemplateStatus struct {
	Capacity   corev1.ResourceList  `json:"capacity,omitempty"`
	Conditions clusterv1.Conditions `json:"conditions,omitempty"`
	OwnerType  string               `json:"ownerType,omitempty"`
	V1Beta2    *V1Beta2Status       `json:"v1beta2,omitempty"`
}

// GetConditions returns the status conditions.
func (t *HCloudMachineTemplate) GetConditions() clusterv1.Conditions { return t.Status.Conditions }

// SetConditions replaces the status conditions.
func (t *HCloudMachineTemplate) SetConditions(conditions clusterv1.Conditions) {
	t.Status.Conditions = conditions
}
