// Package prune leaves one snapshot of each image name: Cluster API needs exactly one.
package prune

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/capacity"
	"github.com/slipway-k8s/slipway/platform"
)

// Image is what has to happen to several snapshots of one name for one of them to remain.
type Image struct {
	Name         string // label caph-image-name
	Architecture string
	Keep         hetzner.Image
	Delete       []hetzner.Image // empty: there is one image already
}

// Plan finds out which snapshots of the configured image conflict with the newest available one, for the servers'
// architecture and those of IMAGE_ARCHITECTURES, and of the images of worker pools with a schematic of their own. It
// deletes nothing. Names that no image has are left out.
func Plan(ctx context.Context, cfg config.Config, tools platform.Tools) ([]Image, error) {
	choice, err := capacity.Choose(ctx, tools.Hetzner, cfg)
	if err != nil {
		return nil, err
	}
	var configured []Image
	for _, architecture := range cfg.Architectures(choice.Architecture) {
		configured = append(configured, Image{Name: cfg.Image(architecture), Architecture: architecture})
	}
	for _, schematic := range cfg.Schematics() {
		for _, architecture := range config.ImageArchitectures() {
			configured = append(configured, Image{Name: cfg.SchematicImage(schematic, architecture), Architecture: architecture})
		}
	}
	var plan []Image
	for _, p := range configured {
		found, err := hetzner.FindImages(ctx, tools.Hetzner, p.Name, p.Architecture)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			continue
		}
		if p.Keep, p.Delete, err = hetzner.Surplus(found); err != nil {
			several := &hetzner.ImageError{
				Name: p.Name, Architecture: p.Architecture, Found: found, Prune: tools.Command("image", "--prune"),
			}
			return nil, fmt.Errorf("%w: %w", several, err)
		}
		plan = append(plan, p)
	}
	return plan, nil
}

// Prune deletes the surplus snapshots, and makes sure that one image is left.
func (p Image) Prune(ctx context.Context, tools platform.Tools) error {
	for _, one := range p.Delete {
		if err := hetzner.DeleteImage(ctx, tools.Hetzner, one.ID); err != nil {
			return err
		}
	}
	_, err := hetzner.FindImage(ctx, tools.Hetzner, p.Name, p.Architecture, tools.Command("image", "--prune"))
	return err
}
