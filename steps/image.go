package steps

import (
	"context"
	"errors"
	"fmt"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
)

// Image is the snapshot that the servers start from.
type Image struct {
	ID           int64  `json:"id"`
	Name         string `json:"name"`         // value of the label caph-image-name
	Architecture string `json:"architecture"` // of the servers
}

// findImage looks for the image as CAPH will, which takes the first refusal as a reason to rest for five minutes.
func (b *bootstrapper) findImage(ctx context.Context, say flow.Say, offer Offer) (Image, error) {
	name := b.cfg.Image(offer.Architecture)
	say("looking for image %s for %s", name, offer.Architecture)
	var found hetzner.Image
	err := wait{what: "image " + name, within: b.cfg.ImageTimeout.D()}.until(ctx, say, func(ctx context.Context) (string, error) {
		var err error
		found, err = hetzner.FindImage(ctx, b.tools.Hetzner, name, offer.Architecture)
		var mismatch *hetzner.ImageError
		switch {
		case errors.As(err, &mismatch), errors.Is(err, hetzner.ErrToken):
			return "", final(err)
		case err != nil:
			return "", err
		case !found.Available():
			return fmt.Sprintf("snapshot %d is %s", found.ID, found.Status), nil
		}
		return "", nil
	})
	return Image{ID: found.ID, Name: name, Architecture: offer.Architecture}, err
}

func (b *bootstrapper) imageStands(ctx context.Context, was Image) flow.Verdict {
	is, err := hetzner.FindImage(ctx, b.tools.Hetzner, was.Name, was.Architecture)
	var mismatch *hetzner.ImageError
	switch {
	case errors.As(err, &mismatch):
		return flow.Gone("%v", err)
	case err != nil:
		return flow.Unknown(err)
	case is.ID != was.ID || !is.Available():
		return flow.Gone("image %s is now snapshot %d, %s", was.Name, is.ID, is.Status)
	}
	return flow.Holds()
}
