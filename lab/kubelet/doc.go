// Package kubelet is the node agent of the lab. It uses the API as a kubelet does: it registers a Node, renews its
// Lease, watches the Pods bound to it, reports their status and deletes them. It has no container runtime: a container
// whose image a Program names runs as a local process; every other one is simulated and reported Ready after a moment.
//
// A process gets its container's arguments and environment; its Secret, ConfigMap, projected, downward API and emptyDir
// volumes as folders that follow their source; a kubeconfig with a bound and refreshed token of its Pod's service
// account; and a loopback port for each container port that its Program requests. Its probes, restarts, termination and
// exit codes are real, and the Pod's log subresource serves its output, with times that are accurate to a quarter of a
// second.
//
// Not provided are a separate file system, network or user, resource limits, hostPath and persistent volumes, emptyDir
// volumes that outlive a restart of the node, exec and gRPC probes, life cycle hooks, and exec and port forwarding
// through the API server. Pods have no IP address, because the API refuses loopback addresses in Endpoints; package
// egress finds them by Registry.
package kubelet
