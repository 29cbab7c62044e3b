package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/images"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
)

// image is the image of the Jobs, as the file names it.
func (f *openedFleet) image() (string, error) {
	if f.lab != nil {
		return lab.CommandImage, nil
	}
	if f.Image == "" {
		return "", usage.Errorf("%s: image is missing: name the image of Slipway that the Jobs run, in a registry that the "+
			"management cluster reaches", f.Path())
	}
	return f.Image, nil
}

// pinImage finds out which digest the tag of the fleet's image stands for now: all Jobs run that one, whatever the tag
// becomes. In a rehearsal the image is this command itself.
func (f *openedFleet) pinImage(ctx context.Context) error {
	reference, err := f.image()
	if err != nil || f.lab != nil {
		return err
	}
	pinned, err := f.pinned(ctx, reference)
	if err != nil {
		return err
	}
	if pinned != reference {
		tell(f.console, "all Jobs run the image %s: %s stands for this digest now", pinned, reference)
	}
	f.Image = pinned
	return nil
}

// pinned is a reference with the digest that its tag stands for now.
func (f *openedFleet) pinned(ctx context.Context, reference string) (string, error) {
	programs, err := lab.NewPrograms(f.own.Config, f.console.workDir, f.overrides)
	if err != nil {
		return "", &usage.Error{Err: err}
	}
	store := images.Store{Registries: programs.Registries}
	digest, err := store.Digest(ctx, reference)
	switch {
	case errors.Is(err, images.ErrReference):
		return "", usage.Errorf("%s: %w", f.Path(), err)
	case err != nil:
		return "", fmt.Errorf("%w\nthe Jobs change clusters, so the image that they run is fixed by its digest: where its registry is not "+
			"reached from here, write the digest into image (%s@sha256:…)", err, reference)
	}
	if strings.Contains(reference, "@") {
		return reference, nil
	}
	return reference + "@" + digest, nil
}
