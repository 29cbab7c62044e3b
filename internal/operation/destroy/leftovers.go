package destroy

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/platform"
)

// Leftovers is everything in the project that belongs to clusters, of whatever name. It changes nothing.
func Leftovers(ctx context.Context, tools platform.Tools) ([]hetzner.Resource, error) {
	inventory, err := hetzner.TakeInventory(ctx, tools.Hetzner)
	return inventory.Resources, err
}
