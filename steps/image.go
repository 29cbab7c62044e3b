package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/factory"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Image is the snapshot that the servers start from.
type Image struct {
	ID           int64   `json:"id"`
	Name         string  `json:"name"`             // value of the label caph-image-name
	Architecture string  `json:"architecture"`     // of the servers
	Others       []Image `json:"others,omitempty"` // for other architectures, where they are asked for
}

// Image adds the step image to a graph: the snapshot that servers are made from exists.
func (s *Set) Image(g *flow.Graph, offer *flow.Step[Offer]) *flow.Step[Image] {
	step := newImageStep(s)
	within := imagesTimeout(s.cfg)
	return flow.Add1(g, "image", step.run, offer).
		Doc("exactly one Talos snapshot for the servers' architecture, found as Cluster API will look for it; made where " +
			"there is none").
		Spec(s.made.image).Verify(step.verify).Deadline(within + wait.Overhead).
		Waits(flow.Wait{For: "the images (IMAGE_TIMEOUT for each)", Within: within})
}

// Installer is the installer image of the configured Talos with what bootstrap/schematic.yaml adds to it, as the
// snapshot has it.
func (s *Set) Installer() (string, error) {
	schematic, err := schematic(s.sources)
	if err != nil {
		return "", err
	}
	id, err := schematic.ID()
	return factory.Installer(id, s.cfg.TalosVersion), err
}

// imageStep runs and verifies the step image.
type imageStep struct {
	cfg     config.Config
	tools   platform.Tools
	sources render.Sources
}

func newImageStep(s *Set) imageStep {
	return imageStep{cfg: s.cfg, tools: s.tools, sources: s.sources}
}

// run finds the image as CAPH will, which takes the first refusal as a reason to rest for five minutes, or makes it.
func (i imageStep) run(ctx context.Context, say flow.Say, offer Offer) (Image, error) {
	run, err := ownership.Identity(i.tools)
	if err != nil {
		return Image{}, err
	}
	schematic, err := schematic(i.sources)
	if err != nil {
		return Image{}, err
	}
	id, err := schematic.ID()
	if err != nil {
		return Image{}, err
	}
	var images []Image
	for _, architecture := range i.cfg.Architectures(offer.Architecture) {
		m := &imageMaker{
			imageStep: i, say: say, run: run, schematic: schematic, schematicID: id,
			offer: offer, name: i.cfg.Image(architecture), architecture: architecture,
		}
		image, err := m.ensure(ctx)
		if err != nil {
			return Image{}, err
		}
		images = append(images, image)
	}
	images[0].Others = images[1:]
	return images[0], nil
}

func (i imageStep) verify(ctx context.Context, was Image) flow.Verdict {
	for _, image := range append([]Image{was}, was.Others...) {
		is, err := hetzner.FindImage(ctx, i.tools.Hetzner, image.Name, image.Architecture,
			i.tools.Command("image", "--prune"))
		var mismatch *hetzner.ImageError
		switch {
		case errors.As(err, &mismatch):
			return flow.Gone("%v", err)
		case err != nil:
			return flow.Unknown(err)
		case is.ID != image.ID || !is.Available():
			return flow.Gone("image %s is now snapshot %d, %s", image.Name, is.ID, is.Status)
		}
	}
	return flow.Holds()
}

// schematic is what bootstrap/schematic.yaml says.
func schematic(sources render.Sources) (factory.Schematic, error) {
	s, err := factory.Parse(sources.Schematic.Data)
	if err != nil {
		return s, fmt.Errorf("%s: %w", sources.Schematic.Name, err)
	}
	return s, nil
}

// knownSchematic is that of the guide, which the Image Factory knows: bootstrap/schematic.yaml as it is inside the
// command.
const knownSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// imageSpec is what the image is made from.
func imageSpec(cfg config.Config, sources render.Sources) (any, error) {
	s, err := schematic(sources)
	if err != nil {
		return nil, err
	}
	id, err := s.ID()
	return map[string]string{
		"imageName": cfg.ImageName, "talosVersion": cfg.TalosVersion, "imageArchitectures": cfg.ImageArchitectures,
		"schematic": id,
	}, err
}

// imagesTimeout is time for every image that may have to be made; only Hetzner knows which architecture the servers
// are.
func imagesTimeout(c config.Config) time.Duration {
	both := len(config.Listed(c.ImageArchitectures)) > 0
	if both {
		return 2 * c.ImageTimeout.D()
	}
	return c.ImageTimeout.D()
}
