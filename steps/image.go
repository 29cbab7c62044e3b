package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/factory"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Image is the snapshot that the servers start from.
type Image struct {
	ID           int64   `json:"id"`
	Name         string  `json:"name"`                // value of the label caph-image-name
	Architecture string  `json:"architecture"`        // of the servers
	Schematic    string  `json:"schematic,omitempty"` // name of a worker pool's; empty: the control plane's
	Others       []Image `json:"others,omitempty"`    // for other architectures and schematics, where they are asked for
}

// Image adds the step image to a graph: the snapshot that servers are made from exists.
func (s *Set) Image(g *flow.Graph, offer *flow.Step[Placement]) *flow.Step[Image] {
	within := imagesTimeout(s.cfg)
	return flow.Add(g, flow.Task[Image]{
		Name: "image",
		Doc: "exactly one Talos snapshot for the servers' architecture, found as Cluster API will look for it; made " +
			"where there is none",
		Run:      flow.With1(s.runImage, offer),
		Spec:     s.made.image,
		Verify:   s.verifyImage,
		Deadline: within + wait.Overhead,
		Waits:    []flow.Wait{{For: "the images (IMAGE_TIMEOUT for each)", Within: within}},
	})
}

// Installer is the installer image of the configured Talos with what bootstrap/schematic.yaml adds to it, as the
// snapshot has it.
func (s *Set) Installer() (string, error) {
	_, id, err := schematic(s.sources, "")
	return factory.Installer(id, s.cfg.TalosVersion), err
}

// runImage finds the image as CAPH will, which takes the first refusal as a reason to rest for five minutes, or makes
// it.
func (s *Set) runImage(ctx context.Context, say flow.Say, offer Placement) (Image, error) {
	run, err := ownership.Identity(s.tools)
	if err != nil {
		return Image{}, err
	}
	var images []Image
	for _, one := range s.wantedImages(offer) {
		m := &imageMaker{Set: s, say: say, run: run, offer: offer, name: one.Name, architecture: one.Architecture,
			schematicName: one.Schematic}
		if m.schematic, m.schematicID, err = schematic(s.sources, one.Schematic); err != nil {
			return Image{}, err
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

// wantedImages are the images of the control plane, one for each architecture, and those of worker pools with a
// schematic of their own.
func (s *Set) wantedImages(offer Placement) (all []Image) {
	for _, architecture := range s.cfg.Architectures(offer.Architecture) {
		all = append(all, Image{Name: s.cfg.Image(architecture), Architecture: architecture})
	}
	for _, p := range s.cfg.Workers {
		at := slices.IndexFunc(offer.Workers, func(w WorkerOffer) bool { return w.Pool == p.Name })
		if p.Schematic == "" || at < 0 {
			continue
		}
		one := Image{Name: s.cfg.SchematicImage(p.Schematic, offer.Workers[at].Architecture),
			Architecture: offer.Workers[at].Architecture, Schematic: p.Schematic}
		if !slices.ContainsFunc(all, func(other Image) bool { return other.Name == one.Name }) {
			all = append(all, one)
		}
	}
	return all
}

func (s *Set) verifyImage(ctx context.Context, was Image) flow.Verdict {
	for _, image := range append([]Image{was}, was.Others...) {
		is, err := hetzner.FindImage(ctx, s.tools.Hetzner, image.Name, image.Architecture,
			s.tools.Command("image", "--prune"))
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

// schematic is what bootstrap/schematic.yaml says, or the schematic of a name, and its id.
func schematic(sources render.Sources, name string) (s factory.Schematic, id string, err error) {
	file, found := sources.SchematicFile(name)
	if !found {
		return s, "", fmt.Errorf("%s does not exist, and a worker pool names it as its schematic: write the file, or leave "+
			"schematic out", file.Name)
	}
	if s, err = factory.Parse(file.Data); err == nil {
		id, err = s.ID()
	}
	if err != nil {
		return s, "", fmt.Errorf("%s: %w", file.Name, err)
	}
	return s, id, nil
}

// knownSchematic is that of the guide, which the Image Factory knows: bootstrap/schematic.yaml as it is inside the
// command.
const knownSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"

// imageSpec is what the image is made from.
func imageSpec(cfg config.Config, sources render.Sources) (any, error) {
	_, id, err := schematic(sources, "")
	if err != nil {
		return nil, err
	}
	spec := map[string]any{
		"imageName": cfg.ImageName, "talosVersion": cfg.TalosVersion, "imageArchitectures": cfg.ImageArchitectures,
		"schematic": id,
	}
	pools := map[string]string{}
	for _, name := range cfg.Schematics() {
		if _, pools[name], err = schematic(sources, name); err != nil {
			return nil, err
		}
	}
	if len(pools) > 0 {
		spec["schematics"] = pools
	}
	return spec, nil
}

// imagesTimeout is time for every image that may have to be made; only Hetzner knows which architecture the servers
// are.
func imagesTimeout(c config.Config) time.Duration {
	images := 1
	if len(config.Listed(c.ImageArchitectures)) > 0 {
		images = 2 // architectures
	}
	for _, p := range c.Workers {
		if p.Schematic != "" {
			images++
		}
	}
	return time.Duration(images) * c.ImageTimeout.D()
}
