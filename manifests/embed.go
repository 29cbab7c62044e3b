// Package manifests holds the YAML that describes the workload cluster and its providers, as people edit it.
package manifests

import "embed"

// Names of the files.
const (
	Cluster            = "cluster.yaml"              // the cluster's objects, in clusterctl's variables
	MachineHealthCheck = "machine-health-check.yaml" // applied with them
	WorkerPool         = "worker-pool.yaml"          // rendered once for every worker pool
	OIDCPatch          = "oidc-patch.yaml"           // added to the control plane's patches when configured
	Clusterctl         = "clusterctl.yaml"           // where the providers come from
)

// Files holds the files of this folder.
//
//go:embed *.yaml
var Files embed.FS
