// Package platform is what plans work with: the clients of Hetzner Cloud, of clusters and of Talos, the provider of the
// management cluster, the state folder, and what the operator agreed to.
package platform
