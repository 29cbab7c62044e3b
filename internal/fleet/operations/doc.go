// Package operations carries out the operations on a fleet, without a terminal: it plans, applies, advances, stops and
// destroys, tells where each cluster is, and makes the manifests of a Job that applies the fleet.
package operations
