// Package situation reads the situation of a cluster: what Hetzner, the management cluster, the workload cluster and
// Talos say of it. Package why explains it. It also deletes Machines that can never become servers, where the operator
// agreed.
package situation
