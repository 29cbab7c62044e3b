package capi

// Annotations of what Cluster API makes from a template: its name and its kind.
const (
	ClonedFromAnnotation     = "cluster.x-k8s.io/cloned-from-name"
	ClonedFromKindAnnotation = "cluster.x-k8s.io/cloned-from-groupkind"
)

const (
	// readoptedAnnotation is on the Cluster object that a readoption has put back: the SHA-256 of the backup's etcd
	// snapshot.
	ReadoptedAnnotation = "slipway.dev/readopted-from"
)

const (
	// restoredAnnotation is on the Cluster object of a cluster that was restored: the SHA-256 of its etcd snapshot.
	RestoredAnnotation = "slipway.dev/restored-from"
)

const (
	// OrderedAgainAnnotation is on an HCloudMachine whose server CAPH does not order again by itself: when a run asked for
	// it last.
	OrderedAgainAnnotation = "slipway.dev/ordered-again"
	// ReplacedAnnotation is on a Secret whose content another one replaced, and on the Pod template of each workload that
	// was restarted since, because its Pods read the Secret as they start: when that was.
	ReplacedAnnotation = "slipway.dev/replaced"
	// UpgradeHeldAnnotation is on a TalosControlPlane that an upgrade has paused until a new server is a Ready node.
	UpgradeHeldAnnotation = "slipway.dev/upgrade-held"
)
