package capi

import "k8s.io/apimachinery/pkg/runtime/schema"

// MachineDeploymentKind is the kind of a group of worker machines.
var MachineDeploymentKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1",
	Kind: "MachineDeployment"}

// MachineHealthCheckKind is the kind of what has unhealthy Machines replaced.
var MachineHealthCheckKind = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1",
	Kind: "MachineHealthCheck"}

// ControlPlaneRole is the label of control plane nodes, which Talos sets.
const ControlPlaneRole = "node-role.kubernetes.io/control-plane"

// WorkerPoolLabel names, on every object of a worker pool and on its Machines, the pool.
const WorkerPoolLabel = "slipway.dev/worker-pool"

// WorkerPoolNodeLabel names, on a node of a worker pool, the pool: manifests/worker-pool.yaml sets it on the Machines,
// and Cluster API copies it.
const WorkerPoolNodeLabel = "node.cluster.x-k8s.io/worker-pool"

// DeploymentLabel names, on a Machine, its MachineDeployment.
const DeploymentLabel = "cluster.x-k8s.io/deployment-name"

// Annotations of the cluster autoscaler (provider clusterapi) on a MachineDeployment.
const (
	AutoscalerMin = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMax = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
)
