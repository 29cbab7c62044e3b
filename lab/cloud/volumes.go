package cloud

import (
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindVolume = "volume"

// volume is stored and reported, but no machine has its disk.
type volume struct {
	meta
	Size     int    `json:"size"` // GB
	Server   int64  `json:"server,omitempty"`
	Location string `json:"location"`
	Format   string `json:"format,omitempty"`
}

func (c *Cloud) volumes() resource[*volume] {
	return resource[*volume]{
		kind: kindVolume, path: "volumes", all: c.state.Volumes,
		view:    func(one *volume) any { return c.viewVolume(one) },
		filters: map[string]func(*volume) string{"status": func(*volume) string { return "available" }},
		update:  noUpdate[*volume],
		remove: func(q *call, one *volume) (any, error) {
			if one.Server != 0 {
				return nil, refuse("resource_in_use", "the volume is attached to server %d", one.Server)
			}
			delete(q.state.Volumes, one.ID)
			return nil, nil
		},
		commands: map[string]func(*call, *volume) (any, error){
			"attach":            with(attachVolume),
			"detach":            detachVolume,
			"resize":            with(resizeVolume),
			"change_protection": changeProtection[*volume](kindVolume),
		},
	}
}

func (c *Cloud) viewVolume(one *volume) schema.Volume {
	shown := schema.Volume{
		ID: one.ID, Name: one.Name, Status: "available", Location: c.locationNamed(one.Location).view,
		Size: one.Size, Protection: schema.VolumeProtection{Delete: one.Protected}, Labels: one.labels(),
		LinuxDevice: fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", one.ID), Created: one.Created,
	}
	if one.Server != 0 {
		shown.Server = &one.Server
	}
	if one.Format != "" {
		shown.Format = &one.Format
	}
	return shown
}

func (c *Cloud) createVolume(q *call, wanted schema.VolumeCreateRequest) (any, error) {
	if wanted.Size < 10 || wanted.Size > 10_240 {
		return nil, invalid("size", "must be 10 to 10240 GB")
	}
	made := &volume{Size: wanted.Size}
	if wanted.Format != nil {
		made.Format = *wanted.Format
	}
	switch {
	case wanted.Server != nil:
		to := c.state.Servers[*wanted.Server]
		if to == nil {
			return nil, invalid("server", "server with ID '%d' not found", *wanted.Server)
		}
		made.Server, made.Location = to.ID, to.Location
	case wanted.Location != nil:
		where, ok := byIDOrName(c.catalog.locations, wanted.Location.ID, wanted.Location.Name)
		if !ok {
			return nil, invalid("location", "location not found")
		}
		made.Location = where.Name
	default:
		return nil, invalid("location", "either location or server must be given")
	}
	var err error
	if made.meta, err = c.volumes().begin(q, wanted.Name, wanted.Labels); err != nil {
		return nil, err
	}
	c.state.Volumes[made.ID] = made
	reply := map[string]any{"next_actions": []schema.Action{}}
	reply["action"] = q.begin("create_volume", on(kindVolume, made.ID)).view()
	if made.Server != 0 {
		next := q.begin("attach_volume", on(kindVolume, made.ID), on(kindServer, made.Server))
		reply["next_actions"] = views([]*action{next})
	}
	reply["volume"] = c.viewVolume(made)
	return reply, nil
}

func attachVolume(q *call, one *volume, wanted schema.VolumeActionAttachVolumeRequest) (any, error) {
	to := q.state.Servers[wanted.Server]
	switch {
	case to == nil:
		return nil, invalid("server", "server with ID '%d' not found", wanted.Server)
	case one.Server != 0:
		return nil, refuse("volume_already_attached", "the volume is attached to server %d", one.Server)
	case to.Location != one.Location:
		return nil, invalid("server", "the server is in %s, the volume in %s", to.Location, one.Location)
	}
	one.Server = to.ID
	return q.acted("attach_volume", on(kindVolume, one.ID), on(kindServer, to.ID)), nil
}

func detachVolume(q *call, one *volume) (any, error) {
	if one.Server == 0 {
		return nil, invalid("server", "the volume is not attached")
	}
	from := one.Server
	one.Server = 0
	return q.acted("detach_volume", on(kindVolume, one.ID), on(kindServer, from)), nil
}

func resizeVolume(q *call, one *volume, wanted schema.VolumeActionResizeVolumeRequest) (any, error) {
	if wanted.Size <= one.Size || wanted.Size > 10_240 {
		return nil, invalid("size", "must be more than the present %d GB and at most 10240", one.Size)
	}
	one.Size = wanted.Size
	return q.acted("resize_volume", on(kindVolume, one.ID)), nil
}
