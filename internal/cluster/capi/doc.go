// Package capi reads Cluster API objects: the fields, conditions, addresses and labels of the kinds that Slipway uses,
// and all that belongs to the clusters of a namespace, which it compares across two management clusters; and it
// lists the providers that a configuration asks for, and those that a cluster has.
package capi
