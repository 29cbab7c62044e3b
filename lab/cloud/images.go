package cloud

import (
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindImage = "image"

// The types of images that exist in the lab.
const (
	imageSystem   = "system"
	imageSnapshot = "snapshot"
	imageBackup   = "backup"
)

// image is an image that a server can be created from. Snapshots and backups have no name.
type image struct {
	meta
	Type         string     `json:"type"`
	Status       string     `json:"status"` // creating, available, unavailable
	Description  string     `json:"description"`
	OSFlavor     string     `json:"osFlavor"`
	OSVersion    string     `json:"osVersion,omitempty"`
	Architecture string     `json:"architecture"` // x86 or arm
	DiskSize     int        `json:"diskSize"`     // GB
	ImageSize    float32    `json:"imageSize,omitempty"`
	From         int64      `json:"from,omitempty"` // the server that it was taken from
	FromName     string     `json:"fromName,omitempty"`
	Deleted      *time.Time `json:"deleted,omitempty"` // deleted, but servers created from it still show it

	Retired *schema.DeprecationInfo `json:"retired,omitempty"` // nil: it is not deprecated
}

// systemImages are the images of Hetzner that programs in the lab request.
func systemImages() []*image {
	var made []*image
	id := int64(1001)
	for _, system := range []struct {
		flavor, version, text string
		retired               *schema.DeprecationInfo
	}{
		{"ubuntu", "24.04", "Ubuntu 24.04", nil},
		{"ubuntu", "22.04", "Ubuntu 22.04", nil},
		{"debian", "13", "Debian 13", nil},
		{"debian", "12", "Debian 12", nil},
		{"rocky", "9", "Rocky Linux 9", nil},
		// One that is deprecated, so that programs meet one; the dates are the lab's.
		{"debian", "11", "Debian 11", &schema.DeprecationInfo{Announced: time.Date(2026, 8, 31, 0, 0, 0, 0, time.UTC),
			UnavailableAfter: time.Date(2027, 2, 28, 0, 0, 0, 0, time.UTC)}},
	} {
		for _, architecture := range []string{"x86", "arm"} {
			made = append(made, &image{
				meta: meta{ID: id, Name: system.flavor + "-" + system.version,
					Created: time.Date(2025, 8, 1, 0, 0, 0, 0, time.UTC)},
				Type: imageSystem, Status: "available", Description: system.text,
				OSFlavor: system.flavor, OSVersion: system.version, Architecture: architecture, DiskSize: 5,
				Retired: system.retired,
			})
			id++
		}
	}
	return made
}

func (c *Cloud) images() resource[*image] {
	return resource[*image]{
		kind: kindImage, path: "images", all: c.state.Images, nameless: true,
		view: func(one *image) any { return c.viewImage(one) },
		filters: map[string]func(*image) string{
			"type":         func(one *image) string { return one.Type },
			"status":       func(one *image) string { return one.Status },
			"architecture": func(one *image) string { return one.Architecture },
			"bound_to":     func(*image) string { return "" }, // backups, which only automatic backups would bind
		},
		hidden: func(q *call, one *image) bool {
			return one.Deleted != nil || one.Retired != nil && q.query.Get("include_deprecated") != "true"
		},
		update:   updateImage,
		remove:   removeImage,
		commands: map[string]func(*call, *image) (any, error){"change_protection": protectImage},
	}
}

func (c *Cloud) viewImage(i *image) schema.Image {
	shown := schema.Image{
		ID: i.ID, Status: i.Status, Type: i.Type, Description: i.Description,
		DiskSize: float32(i.DiskSize), Created: &i.Created, OSFlavor: i.OSFlavor,
		Architecture: i.Architecture, RapidDeploy: i.Type == imageSystem,
		Protection: schema.ImageProtection{Delete: i.Protected},
		Deleted:    i.Deleted, Labels: i.labels(),
	}
	if i.Name != "" {
		shown.Name = &i.Name
	}
	if i.OSVersion != "" {
		shown.OSVersion = &i.OSVersion
	}
	if i.ImageSize > 0 {
		shown.ImageSize = &i.ImageSize
	}
	if i.From != 0 {
		shown.CreatedFrom = &schema.ImageCreatedFrom{ID: i.From, Name: i.FromName}
	}
	if i.Retired != nil {
		shown.Deprecated = &i.Retired.Announced //lint:ignore SA1019 The API answers it still.
		if c.since(APINovember2026) {
			shown.Deprecation = i.Retired
		}
	}
	return shown
}

func updateImage(q *call, one *image) error {
	if one.Type == imageSystem || one.Deleted != nil {
		return refuse("forbidden", "only snapshots and backups can be changed")
	}
	var change schema.ImageUpdateRequest
	if err := q.decode(&change); err != nil {
		return err
	}
	if change.Type != nil {
		if *change.Type != imageSnapshot {
			return invalid("type", "an image can only become a snapshot")
		}
		one.Type = imageSnapshot
	}
	if change.Description != nil {
		one.Description = *change.Description
	}
	return nil
}

// removeImage deletes a snapshot or backup. Servers created from it remain, and show it as deleted.
func removeImage(q *call, one *image) (any, error) {
	if one.Type == imageSystem {
		return nil, refuse("forbidden", "system images cannot be deleted")
	}
	if one.Deleted != nil {
		return nil, notFound(kindImage, one.ID)
	}
	for _, made := range q.state.Servers {
		if made.Image == one.ID {
			gone := now().UTC().Truncate(time.Second)
			one.Deleted = &gone
			return nil, nil
		}
	}
	delete(q.state.Images, one.ID)
	return nil, nil
}

func protectImage(q *call, one *image) (any, error) {
	if one.Type == imageSystem {
		return nil, refuse("forbidden", "system images cannot be protected")
	}
	return changeProtection[*image](kindImage)(q, one)
}

// imageFor finds the image for a new server of the architecture.
func (c *Cloud) imageFor(wanted schema.IDOrName, architecture string) (*image, error) {
	text := idOrNameText(wanted)
	found, ok := c.state.Images[wanted.ID]
	for _, one := range ordered(c.state.Images) {
		// A name selects one image for each architecture; an id selects one image.
		if !ok && one.Name != "" && one.Name == text && one.Architecture == architecture {
			found, ok = one, true
		}
	}
	switch {
	case !ok || found.Deleted != nil:
		return nil, invalid("image", "image %q not found for architecture %s", text, architecture)
	case found.Architecture != architecture:
		return nil, invalid("image", "image %q is made for %s, the server type is %s", text, found.Architecture, architecture)
	case found.Status != "available":
		return nil, refuse("resource_unavailable", "image %q is not available: its status is %s", text, found.Status)
	}
	return found, nil
}

// createImage is the server's create_image command.
func createImage(q *call, from *server, wanted schema.ServerActionCreateImageRequest) (any, error) {
	kind := imageSnapshot
	if wanted.Type != nil {
		kind = *wanted.Type
	}
	if kind != imageSnapshot && kind != imageBackup {
		return nil, invalid("type", "%q is not snapshot or backup", kind)
	}
	var labels map[string]string
	if wanted.Labels != nil {
		labels = *wanted.Labels
	}
	if err := checkLabels(labels); err != nil {
		return nil, err
	}
	flavor := "unknown"
	if base := q.state.Images[from.Image]; base != nil {
		flavor = base.OSFlavor
	}
	hardware := q.serverTypeOf(from)
	made := &image{
		meta: q.newMeta("", labels), Type: kind, Status: "creating", OSFlavor: flavor,
		Description: "snapshot of " + from.Name, Architecture: hardware.architecture,
		DiskSize: from.Disk, From: from.ID, FromName: from.Name,
	}
	if wanted.Description != nil && *wanted.Description != "" {
		made.Description = *wanted.Description
	}
	q.state.Images[made.ID] = made
	action := q.begin("create_image", on(kindServer, from.ID), on(kindImage, made.ID))
	return map[string]any{"image": q.viewImage(made), "action": action.view()}, nil
}

// endCreateImage makes the image available, or removes it if its action failed.
func (c *Cloud) endCreateImage(a *action) effect {
	return effect{done: func(failed bool) {
		for _, resource := range a.Resources {
			made := c.state.Images[resource.ID]
			if resource.Type != kindImage || made == nil {
				continue
			}
			if failed {
				delete(c.state.Images, made.ID)
				continue
			}
			made.Status, made.ImageSize = "available", 0.4
		}
	}}
}

// EnsureSnapshot ensures that there is an available snapshot labelled caph-image-name=<name> and
// os=talos for the architecture: x86 or arm, or as Go calls them amd64 or arm64.
func (c *Cloud) EnsureSnapshot(name, architecture string) error {
	switch architecture {
	case "amd64":
		architecture = "x86"
	case "arm64":
		architecture = "arm"
	}
	labels := map[string]string{"caph-image-name": name, "os": "talos"}
	if architecture != "x86" && architecture != "arm" {
		return fmt.Errorf("making the snapshot %s: unknown architecture %q: it is x86 (amd64) or arm (arm64)", name,
			architecture)
	}
	if err := checkLabels(labels); err != nil {
		return fmt.Errorf("making the snapshot %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.state.Images {
		if one.Type == imageSnapshot && one.Deleted == nil && one.Labels["caph-image-name"] == name &&
			one.Architecture == architecture {
			return nil
		}
	}
	made := &image{
		meta: c.newMeta("", labels), Type: imageSnapshot, Status: "available", OSFlavor: "unknown",
		Description: name + " " + architecture, Architecture: architecture, DiskSize: 20, ImageSize: 0.4,
	}
	c.state.Images[made.ID] = made
	return c.save()
}
