// Package management knows the management cluster of a state folder: the record of it, whether it holds the objects of
// the cluster, and whether the cluster manages itself.
package management
