package hetzner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"

	"github.com/apricote/hcloud-upload-image/hcloudimages"
	"github.com/apricote/hcloud-upload-image/hcloudimages/contextlogger"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"
)

// Labels of a snapshot beside those that CAPH reads. The temporary server and key of its upload carry the same ones.
const (
	runLabel       = "slipway-run"       // ImageOrder.Run
	schematicLabel = "slipway-schematic" // the first schematicDigits of ImageOrder.Schematic
	archLabel      = "arch"              // "amd64", as in packer/
)

// schematicDigits keeps 64 bits of a schematic's id; the whole of it is one character longer than a label's value may
// be.
const schematicDigits = 16

// SchematicLabel is how a snapshot's label writes a schematic's id.
func SchematicLabel(id string) string { return id[:min(schematicDigits, len(id))] }

// ImageOrder is an image that is to be made.
type ImageOrder struct {
	Name         string   // label caph-image-name
	Architecture string   // "amd64", "arm64"
	URL          *url.URL // the disk image, compressed with xz; Hetzner downloads it
	Schematic    string   // id that it is made from
	Description  string
	Cluster      string // that it is made for
	Run          string // whose upload it is: runs that share a journal, and so never run at once, share this
	Location     string // of the temporary server
	ServerType   string // of the temporary server
}

func (o ImageOrder) labels() map[string]string {
	return map[string]string{
		imageLabel: o.Name, "os": "talos", archLabel: o.Architecture,
		OwnerLabel: o.Cluster, runLabel: o.Run, schematicLabel: SchematicLabel(o.Schematic),
	}
}

// Uploader makes a snapshot of a disk image with a temporary server and SSH key. ByRescueSystem is the real one.
type Uploader func(context.Context, *hcloud.Client, hcloudimages.UploadOptions) (*hcloud.Image, error)

// ByRescueSystem is the method of hcloudimages: it boots a temporary server into Hetzner's rescue system and has it
// write the image over its disk, over SSH. It accepts any host key, as that of a rescue system cannot be known before.
func ByRescueSystem(ctx context.Context, c *hcloud.Client, o hcloudimages.UploadOptions) (*hcloud.Image, error) {
	return hcloudimages.NewClient(c).Upload(ctx, o)
}

// MakeImage makes the image with an uploader, and returns the snapshot's id. progress hears of every step, log takes
// the library's own messages. It returns as soon as ctx is done; the temporary server and key are then left for Uploads
// to find, as after any error.
func MakeImage(ctx context.Context, c *hcloud.Client, upload Uploader, o ImageOrder, progress func(string),
	log io.Writer) (int64, error) {
	heard := &uploadLog{progress: progress}
	options := hcloudimages.UploadOptions{
		ImageURL: o.URL, ImageCompression: hcloudimages.CompressionXZ, Architecture: hetznerArchitecture(o.Architecture),
		ServerType: &hcloud.ServerType{Name: o.ServerType}, Location: &hcloud.Location{Name: o.Location},
		Description: &o.Description, Labels: o.labels(),
	}
	type answer struct {
		image *hcloud.Image
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		image, err := upload(contextlogger.New(ctx, heard.logger(log)), c, options)
		answers <- answer{image, err}
	}()
	// The library does not end its SSH command when ctx does. Left behind it can do nothing more: every request of its
	// carries ctx.
	select {
	case a := <-answers:
		if a.err != nil {
			return 0, fmt.Errorf("create image %s from %s: %w", o.Name, o.URL, explain(withOutput(a.err, heard)))
		}
		return a.image.ID, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("create image %s: %w", o.Name, context.Cause(ctx))
	}
}

// withOutput adds to a command's failure what the command wrote, which the library only logs.
func withOutput(err error, heard *uploadLog) error {
	var exit *ssh.ExitError
	if output := heard.lastOutput(); errors.As(err, &exit) && output != "" {
		return fmt.Errorf("%w: the temporary server says: %s", err, output)
	}
	return err
}

// OutOfStock reports whether an upload failed because Hetzner has no such server just now.
func OutOfStock(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeResourceUnavailable, hcloud.ErrorCodePlacementError)
}

// UploadServerTypes lists server types for the temporary server, the best first: of the architecture, sold in the
// location and not about to vanish, the smallest disk first, because a snapshot fits only servers with a disk as large,
// then the cheapest. Where servers are of the same architecture, none has a larger disk than theirs.
func UploadServerTypes(ctx context.Context, c *hcloud.Client, location, architecture, servers string) ([]string,
	error) {
	all, err := c.ServerType.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("list server types: %w", explain(err))
	}
	largest := 0 // GB; 0: no bound
	for _, t := range all {
		if t.Name == servers && Architecture(t.Architecture) == architecture {
			largest = t.Disk
		}
	}
	fits := slices.DeleteFunc(all, func(t *hcloud.ServerType) bool {
		return Architecture(t.Architecture) != architecture || largest > 0 && t.Disk > largest ||
			!slices.Contains(soldAt(t), location) || retiring(t, location)
	})
	if len(fits) == 0 {
		return nil, &NoUploadTypeError{Location: location, Architecture: architecture}
	}
	slices.SortFunc(fits, func(a, b *hcloud.ServerType) int {
		return cmp.Or(cmp.Compare(a.Disk, b.Disk), cmp.Compare(price(a, location), price(b, location)),
			cmp.Compare(a.Name, b.Name))
	})
	names := make([]string, len(fits))
	for i, t := range fits {
		names[i] = t.Name
	}
	return names, nil
}

// NoUploadTypeError says that no temporary server for an image can be had in a location.
type NoUploadTypeError struct{ Location, Architecture string }

// Error implements error.
func (e *NoUploadTypeError) Error() string {
	return fmt.Sprintf("no %s server type is sold in %s to create the image with: choose another LOCATION, or create the "+
		"image with Packer: the target image with --packer prints how",
		e.Architecture, e.Location)
}

// retiring reports whether a type is deprecated in a location: it may be refused any day.
func retiring(t *hcloud.ServerType, location string) bool {
	return t.IsDeprecated() || slices.ContainsFunc(t.Locations, func(l hcloud.ServerTypeLocation) bool {
		return l.Location != nil && l.Location.Name == location && l.IsDeprecated()
	})
}

// price is what a type costs an hour in a location; 0 where that is unknown.
func price(t *hcloud.ServerType, location string) float64 {
	for _, p := range t.Pricings {
		if p.Location != nil && p.Location.Name == location {
			net, _ := strconv.ParseFloat(p.Hourly.Net, 64) // only orders the choice
			return net
		}
	}
	return 0
}
