package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Image is something that CAPH would start servers from.
type Image struct {
	ID          int64
	Snapshot    bool // false: found by its own name, which snapshots have not
	Status      string
	Description string
	Created     time.Time
	Cluster     string // that Slipway made it for; empty: it did not
	Run         string // which made it: see ImageOrder
	Schematic   string // as ImageOrder's label of it; empty: unknown
}

// Available reports whether servers can be made from the image now. CAPH does not ask and would try at once.
func (i Image) Available() bool { return i.Status == string(hcloud.ImageStatusAvailable) }

// Creating reports whether the image may become available.
func (i Image) Creating() bool { return i.Status == string(hcloud.ImageStatusCreating) }

// String names the image for a person who has to choose.
func (i Image) String() string {
	what := "snapshot"
	if !i.Snapshot {
		what = "image"
	}
	by := ""
	if i.Cluster != "" {
		by = ", created for cluster " + i.Cluster
	}
	return fmt.Sprintf("%s %d (%s, of %s, %q%s)", what, i.ID, i.Status, i.Created.UTC().Format("2006-01-02 15:04 MST"),
		i.Description, by)
}

// ImageError says why CAPH would not find exactly one image.
type ImageError struct {
	Name         string
	Architecture string
	Found        []Image // what matches; empty: nothing
	Prune        string  // the command that deletes all but one
	Own          bool    // it is the operator's: no target creates it
}

// Error implements error.
func (e *ImageError) Error() string {
	if len(e.Found) == 0 {
		text := fmt.Sprintf("no image for %s carries the label %s=%s (a snapshot's description does not count)", e.Architecture,
			imageLabel, e.Name)
		if e.Own {
			return text
		}
		return text + ": the target image creates one"
	}
	list := make([]string, len(e.Found))
	for i, one := range e.Found {
		list[i] = one.String()
	}
	return fmt.Sprintf("%d images for %s match %s=%s, Cluster API needs exactly one: %s. To keep the newest available "+
		"snapshot and delete the others, run: %s. Or take the label from those that are not meant",
		len(e.Found), e.Architecture, imageLabel, e.Name, strings.Join(list, ", "), cmp.Or(e.Prune, "image --prune"))
}

// FindImages lists, oldest first, what CAPH would find: by the label caph-image-name, and by an image's own name, for
// the architecture. It finds images of every status, as CAPH does.
func FindImages(ctx context.Context, c *hcloud.Client, name, architecture string) ([]Image, error) {
	arch := []hcloud.Architecture{hetznerArchitecture(architecture)}
	var found []Image
	for _, opts := range []hcloud.ImageListOpts{
		{ListOpts: hcloud.ListOpts{LabelSelector: imageLabel + "==" + name}, Architecture: arch},
		{Name: name, Architecture: arch},
	} {
		images, err := c.Image.AllWithOpts(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("look for image %s: %w", name, explain(err))
		}
		for _, i := range images {
			found = append(found, Image{
				ID: i.ID, Snapshot: i.Type == hcloud.ImageTypeSnapshot, Status: string(i.Status), Description: i.Description,
				Created: i.Created,
				Cluster: i.Labels[OwnerLabel], Run: i.Labels[runLabel], Schematic: i.Labels[schematicLabel],
			})
		}
	}
	slices.SortFunc(found, func(a, b Image) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

// FindImage finds the one image that CAPH would find. None or several are an *ImageError, which names prune, the
// command that deletes all but one.
func FindImage(ctx context.Context, c *hcloud.Client, name, architecture, prune string) (Image, error) {
	found, err := FindImages(ctx, c, name, architecture)
	if err != nil {
		return Image{}, err
	}
	if len(found) != 1 {
		return Image{}, &ImageError{Name: name, Architecture: architecture, Found: found, Prune: prune}
	}
	return found[0], nil
}

// ImageExists asks for an image by its id, which knows it earlier than a list may.
func ImageExists(ctx context.Context, c *hcloud.Client, id int64) (bool, error) {
	image, _, err := c.Image.GetByID(ctx, id)
	if err != nil {
		return false, fmt.Errorf("ask for snapshot %d: %w", id, explain(err))
	}
	return image != nil, nil
}

// Creation asks how far the creation of a snapshot is, in per cent. A failed one is a *CreationError: the snapshot will
// never be available.
func Creation(ctx context.Context, c *hcloud.Client, id int64) (progress int, err error) {
	actions, err := c.Image.Action.All(ctx, hcloud.ActionListOpts{Status: []hcloud.ActionStatus{hcloud.ActionStatusRunning,
		hcloud.ActionStatusError}})
	if err != nil {
		return 0, fmt.Errorf("ask how far snapshot %d is: %w", id, explain(err))
	}
	for _, a := range actions {
		about := &hcloud.ActionResource{ID: id, Type: hcloud.ActionResourceTypeImage}
		if a.Command != "create_image" || !slices.ContainsFunc(a.Resources,
			func(r *hcloud.ActionResource) bool { return *r == *about }) {
			continue
		}
		if a.Status == hcloud.ActionStatusError {
			return 0, &CreationError{ID: id, Why: a.Error()}
		}
		return a.Progress, nil
	}
	return 0, nil
}

// CreationError is a snapshot whose creation failed.
type CreationError struct {
	ID  int64
	Why error
}

func (e *CreationError) Error() string {
	return fmt.Sprintf("the creation of snapshot %d failed: %v", e.ID, e.Why)
}

func (e *CreationError) Unwrap() error { return e.Why }

// DeleteImage deletes a snapshot. One that is gone already is no error.
func DeleteImage(ctx context.Context, c *hcloud.Client, id int64) error {
	_, err := c.Image.Delete(ctx, &hcloud.Image{ID: id})
	switch {
	case err == nil, hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		return nil
	case hcloud.IsError(err, hcloud.ErrorCodeProtected):
		return fmt.Errorf("snapshot %d is protected against deletion: take the protection away first (%w)", id, err)
	}
	return fmt.Errorf("delete snapshot %d: %w", id, explain(err))
}

// ErrNoneAvailable means that there is no image which could replace the others.
var ErrNoneAvailable = errors.New("none of them is available: nothing is deleted")

// Surplus says which of several images stays, the newest available one, and which snapshots conflict with it. An image
// that is no snapshot can neither be deleted nor stay beside one: it stays, and all snapshots conflict with it.
func Surplus(found []Image) (keep Image, surplus []Image, err error) {
	best := -1
	for i, one := range found {
		switch {
		case !one.Available():
		case best < 0, !one.Snapshot, found[best].Snapshot && one.Created.Compare(found[best].Created) >= 0:
			best = i
		}
	}
	if best < 0 {
		return Image{}, nil, ErrNoneAvailable
	}
	for i, one := range found {
		if i != best && one.Snapshot {
			surplus = append(surplus, one)
		}
	}
	return found[best], surplus, nil
}
