package platform

// Names of files in the state folder.
const (
	ManagementKubeconfig = "management.kubeconfig" // of the management cluster
	Kubeconfig           = "kubeconfig"            // of the workload cluster
	Talosconfig          = "talosconfig"           // of the workload cluster
)
