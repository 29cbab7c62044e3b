// Package world composes the lab: the simulated Hetzner Cloud, its Talos servers, management clusters, the
// provider and chart repository, and the control API by which the command speaks to it. One World is one folder;
// started again on it, it is the same world.
package world
