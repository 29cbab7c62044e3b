package hetzner

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Image is a snapshot that servers can be made from.
type Image struct {
	ID     int64
	Status string
}

// Available tells whether servers can be made from the image now. CAPH does not ask and would try at once.
func (i Image) Available() bool { return i.Status == string(hcloud.ImageStatusAvailable) }

// ImageError says why CAPH would not find exactly one image.
type ImageError struct {
	Name         string
	Architecture string
	IDs          []int64 // what matches; empty: nothing
}

// Error implements error.
func (e *ImageError) Error() string {
	if len(e.IDs) == 0 {
		return fmt.Sprintf("no image for %s carries the label %s=%s (a snapshot's description does not count): "+
			"build one with packer/hcloud_talosimage.pkr.hcl, or label an existing Talos snapshot", e.Architecture, imageLabel, e.Name)
	}
	return fmt.Sprintf("%d images for %s match %s=%s (%v), CAPH needs exactly one: delete the others or take their label away",
		len(e.IDs), e.Architecture, imageLabel, e.Name, e.IDs)
}

// FindImage finds the image that CAPH would find: by the label caph-image-name, or by an image's own name, for the
// architecture, together exactly one. Anything else is an *ImageError.
func FindImage(ctx context.Context, c *hcloud.Client, name, architecture string) (Image, error) {
	arch := []hcloud.Architecture{hetznerArchitecture(architecture)}
	var found []Image
	for _, opts := range []hcloud.ImageListOpts{
		{ListOpts: hcloud.ListOpts{LabelSelector: imageLabel + "==" + name}, Architecture: arch},
		{Name: name, Architecture: arch},
	} {
		images, err := c.Image.AllWithOpts(ctx, opts)
		if err != nil {
			return Image{}, fmt.Errorf("look for image %s: %w", name, explain(err))
		}
		for _, i := range images {
			found = append(found, Image{ID: i.ID, Status: string(i.Status)})
		}
	}
	if len(found) != 1 {
		e := &ImageError{Name: name, Architecture: architecture}
		for _, i := range found {
			e.IDs = append(e.IDs, i.ID)
		}
		slices.Sort(e.IDs)
		return Image{}, e
	}
	return found[0], nil
}
