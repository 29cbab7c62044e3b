// Package capi reads Cluster API objects of the kinds that Slipway uses: their fields, conditions, addresses and
// labels.
package capi
