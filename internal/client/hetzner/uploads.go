package hetzner

import (
	"context"
	"fmt"
	"time"

	"github.com/apricote/hcloud-upload-image/hcloudimages"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Upload is something temporary that an upload of an image needs, or has left.
type Upload struct {
	Server       bool // false: an SSH key
	ID           int64
	Name         string
	Status       string // of a server
	Created      time.Time
	Cluster, Run string // see ImageOrder
	Image        string // name of the image that is being made
	Architecture string
}

// String names it for a person.
func (u Upload) String() string {
	what := "SSH key"
	if u.Server {
		what = "server"
	}
	return fmt.Sprintf("temporary %s %d (%s)", what, u.ID, u.Name)
}

// Uploads lists what uploads by Slipway have in the project, of whatever cluster, servers first. It has the library's
// label and ours: hcloudimages's own cleanup would delete those of every user of it.
func Uploads(ctx context.Context, c *hcloud.Client) ([]Upload, error) {
	mine := hcloud.ListOpts{LabelSelector: hcloudimages.CreatedByLabel + "==" + hcloudimages.CreatedByValue + "," +
		OwnerLabel + "," + runLabel}
	servers, err := c.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: mine})
	if err != nil {
		return nil, fmt.Errorf("look for temporary servers of image uploads: %w", explain(err))
	}
	keys, err := c.SSHKey.AllWithOpts(ctx, hcloud.SSHKeyListOpts{ListOpts: mine})
	if err != nil {
		return nil, fmt.Errorf("look for temporary SSH keys of image uploads: %w", explain(err))
	}
	var found []Upload
	add := func(server bool, id int64, name, status string, created time.Time, labels map[string]string) {
		found = append(found, Upload{
			Server: server, ID: id, Name: name, Status: status, Created: created,
			Cluster: labels[OwnerLabel], Run: labels[runLabel], Image: labels[imageLabel], Architecture: labels[archLabel],
		})
	}
	for _, s := range servers {
		add(true, s.ID, s.Name, string(s.Status), s.Created, s.Labels)
	}
	for _, k := range keys {
		add(false, k.ID, k.Name, "", k.Created, k.Labels)
	}
	return found, nil
}

// RemoveUpload has it deleted. A server is gone a moment later. One that Hetzner is at work on cannot be deleted yet:
// then busy is true.
func RemoveUpload(ctx context.Context, c *hcloud.Client, u Upload) (busy bool, err error) {
	switch {
	case !u.Server:
		_, err = c.SSHKey.Delete(ctx, &hcloud.SSHKey{ID: u.ID})
	case u.Status == string(hcloud.ServerStatusDeleting):
		return true, nil
	default:
		_, _, err = c.Server.DeleteWithResult(ctx, &hcloud.Server{ID: u.ID})
	}
	switch {
	case err == nil, hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		return false, nil
	case hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict):
		return true, nil
	}
	return false, fmt.Errorf("delete the %s: %w", u, explain(err))
}
