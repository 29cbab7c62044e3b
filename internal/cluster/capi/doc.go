// Package capi reads what a cluster has of Cluster API: the fields, conditions, addresses and labels of its objects,
// all that belongs to the clusters of a namespace, which it compares across two management clusters, and the providers.
package capi
