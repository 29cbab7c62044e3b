package steps

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/hetzner"
)

// Operations are what is done to a cluster outside the graph of its bootstrap: taking it away, looking for what is left
// of it, replacing one of its machines. Whoever calls those that change something holds the journal's lock.
type Operations struct {
	b              *Set
	sweepEvery     time.Duration // between two looks at what is left, at first
	sweepSlowest   time.Duration // and while nothing changes
	webhooksWithin time.Duration // for Cluster API's webhooks to answer
}

// NewOperations makes them for the cluster of a configuration.
func NewOperations(cfg Config, tools Tools) *Operations {
	// A cluster must be taken away also where somebody has broken a file that it was made from: then the files have no say.
	s, err := readSources(cfg.variables(), tools.Overrides)
	if err != nil {
		s = sources{vars: cfg.variables()}
	}
	return &Operations{b: newSet(cfg, tools, s), sweepEvery: sweepEvery, sweepSlowest: sweepSlowest, webhooksWithin: webhooksWithin}
}

// Leftovers is everything in the project that belongs to clusters, of whatever name. It changes nothing.
func (o *Operations) Leftovers(ctx context.Context) ([]hetzner.Resource, error) {
	inventory, err := hetzner.TakeInventory(ctx, o.b.tools.Hetzner)
	return inventory.Resources, err
}
