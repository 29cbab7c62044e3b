// Package kubelet is the node agent of the lab. It speaks to the API server as a kubelet does: it registers a
// Node, renews its Lease, watches the Pods bound to it, reports their status and deletes them. What it does not
// have is a container runtime: a container whose image a Program names runs as a local process, every other one is
// simulated and becomes Ready after a moment.
//
// What a process gets: its container's arguments and environment, its Secret, ConfigMap, projected, downward
// API and emptyDir volumes as folders that follow their source, a kubeconfig with a bound and refreshed token
// of its Pod's service account, and a loopback port for each container port its Program asks for. Its probes,
// restarts, termination and exit codes are real, and its output is what the Pod's log subresource serves, with
// times that are right to a quarter of a second.
//
// What it does not get, and what nobody should take this package for: a file system, a network or a user of its own,
// resource limits, hostPath and persistent volumes, emptyDir volumes that outlive a restart of the node, exec and gRPC
// probes, life cycle hooks, exec and port forwarding through the API server. Pods have no IP address, because the API
// refuses loopback addresses in Endpoints; package egress finds them by Registry.
package kubelet
