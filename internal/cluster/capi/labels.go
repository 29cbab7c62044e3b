package capi

// Labels of Cluster API and clusterctl.
const (
	ClusterNameLabel  = "cluster.x-k8s.io/cluster-name"
	ControlPlaneLabel = "cluster.x-k8s.io/control-plane"
	DeploymentLabel   = "cluster.x-k8s.io/deployment-name" // on a Machine: its MachineDeployment
	ProviderLabel     = "cluster.x-k8s.io/provider"        // on everything that a provider is made of
	MoveLabel         = "clusterctl.cluster.x-k8s.io/move" // goes along when the cluster is moved to another manager
	CoreLabel         = "clusterctl.cluster.x-k8s.io/core" // with CertManagerCore: on everything of cert-manager
	CertManagerCore   = "cert-manager"

	crdLabel = "clusterctl.cluster.x-k8s.io" // on the definitions of all kinds whose objects can be moved
)

// ControlPlaneProviderName is CACPPT's name at clusterctl, and the value of ProviderLabel on what it is made of.
const ControlPlaneProviderName = "control-plane-talos"

// BootstrapDataKey is the key of the machine configuration in the Secret of a Machine.
const BootstrapDataKey = "value"

// ControlPlaneRole is the label of control plane nodes, which Talos sets.
const ControlPlaneRole = "node-role.kubernetes.io/control-plane"

// WorkerPoolLabel names, on every object of a worker pool and on its Machines, the pool.
const WorkerPoolLabel = "slipway.dev/worker-pool"

// WorkerPoolNodeLabel names, on a node of a worker pool, the pool: manifests/worker-pool.yaml sets it on the Machines,
// and Cluster API copies it.
const WorkerPoolNodeLabel = "node.cluster.x-k8s.io/worker-pool"

// Annotations of the cluster autoscaler (provider clusterapi) on a MachineDeployment.
const (
	AutoscalerMin = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMax = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
)

// PausedAnnotation pauses the controllers of one object. CACPPT respects it on a TalosControlPlane.
const PausedAnnotation = "cluster.x-k8s.io/paused"

// Annotations of what Cluster API makes from a template: its name and its kind.
const (
	ClonedFromAnnotation     = "cluster.x-k8s.io/cloned-from-name"
	ClonedFromKindAnnotation = "cluster.x-k8s.io/cloned-from-groupkind"
)

// Annotations that Cluster API puts on a node.
const (
	NodeClusterAnnotation   = "cluster.x-k8s.io/cluster-name"
	NodeNamespaceAnnotation = "cluster.x-k8s.io/cluster-namespace"
	NodeMachineAnnotation   = "cluster.x-k8s.io/machine"
	NodeOwnerAnnotation     = "cluster.x-k8s.io/owner-name" // of its Machine: of a worker's the MachineSet
)

// Annotations of a move, as clusterctl names them.
const (
	// DeleteForMove is on an object at the source a moment before it is deleted there: webhooks may respect it.
	// clusterctl's mover, which older releases of Slipway used, leaves it in place of all other annotations.
	DeleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	// BlockMove is on an object whose provider has something to do, after the pause, before it can be moved.
	BlockMove = "clusterctl.cluster.x-k8s.io/block-move"
)

// ConversionDataAnnotation is where an API server keeps, in an object read in an older version, what only the newer one
// has, its status included.
const ConversionDataAnnotation = "cluster.x-k8s.io/conversion-data"

// Annotations of Slipway.
const (
	// ReadoptedAnnotation is on the Cluster object that a readoption has put back: the SHA-256 of the backup's etcd
	// snapshot.
	ReadoptedAnnotation = "slipway.dev/readopted-from"
	// RestoredAnnotation is on the Cluster object of a cluster that was restored: the SHA-256 of its etcd snapshot.
	RestoredAnnotation = "slipway.dev/restored-from"
	// OrderedAgainAnnotation is on an HCloudMachine whose server CAPH does not order again by itself: when a run asked
	// for it last.
	OrderedAgainAnnotation = "slipway.dev/ordered-again"
	// ReplacedAnnotation is on a Secret whose content another one replaced, and on the Pod template of each workload
	// that was restarted since, because its Pods read the Secret as they start: when that was.
	ReplacedAnnotation = "slipway.dev/replaced"
	// UpgradeHeldAnnotation is on a TalosControlPlane that an upgrade has paused until a new server is a Ready node, or
	// until the upgrade is resumed: when it was (RFC 3339); "true" by older releases.
	UpgradeHeldAnnotation = "slipway.dev/upgrade-held"
)
