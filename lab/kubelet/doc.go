// Package kubelet is the node agent of the lab. It uses the API as a kubelet does: it registers a Node, renews its
// Lease, watches the Pods bound to it, reports their status and deletes them. It has no container runtime: a container
// whose image a Program names runs as a local process; every other one is simulated and reported Ready after a moment.
//
// A process gets its container's arguments and environment, and its Secret, ConfigMap, projected, downward API and
// emptyDir volumes as folders that follow their source. Where the system permits it (package sandbox), each Pod has a
// network of its own and each container its volumes at their paths, so that a program runs as in its image: it finds
// its service account, the API server and, on a cloud's server, the metadata service where it expects them, and no
// file of the machine but its program, libraries and certificate authorities. Pods on the host's network share one
// network for each Node. Elsewhere a process finds the folders, a kubeconfig and loopback ports by the placeholders
// of its Program. Its probes, restarts, termination and exit codes are real, and the Pod's log subresource serves its
// output, with times that are accurate to a quarter of a second.
//
// Not provided are an image's files, separate users and process ids, resource limits, the files of hostPath and
// persistent volumes, emptyDir volumes that outlive a restart of the node, exec and gRPC probes, life cycle hooks, and
// exec and port forwarding through the API server. The API has no IP address of a Pod, because it refuses loopback
// addresses in Endpoints; package egress finds Pods by Registry.
package kubelet
