// Package management creates, opens and verifies the management cluster of a state folder, records which one it is, and
// finds out whether it or the cluster itself has the cluster's objects.
package management
