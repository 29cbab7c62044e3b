package capi

import "k8s.io/apimachinery/pkg/runtime/schema"

// MachineDeploymentKind is the kind of a group of worker machines.
var MachineDeploymentKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1",
	Kind: "MachineDeployment"}

// ControlPlaneRole is the label of control plane nodes, which Talos sets.
const ControlPlaneRole = "node-role.kubernetes.io/control-plane"
