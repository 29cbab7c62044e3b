// Package situation reads the state of a cluster from Hetzner, the management cluster, the workload cluster and Talos.
// Package why explains it. It also deletes Machines that can never become servers, where the operator agreed.
package situation
