// Package fleet reads fleet.yaml, many clusters as entries over shared defaults, and changes them out of a management
// cluster: with a Job for each cluster and change, canaries first, so many at once, and none any more once too many
// clusters have failed. What a rollout knows is in the management cluster, so that any process can continue it.
package fleet
