package environment

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/rescue"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// machines runs the simulated cloud's servers: the rescue system for one boot if it was requested, Talos otherwise.
type machines struct {
	disk   *talos.Talos
	rescue *rescue.Rescue
}

var _ cloud.Machine = machines{}

func (m machines) Start(ctx context.Context, server cloud.Server) error {
	if server.Rescue {
		return m.rescue.Start(ctx, server)
	}
	return m.disk.Start(ctx, server)
}

func (m machines) Stop(ctx context.Context, serverID int64, hard bool) error {
	return errors.Join(m.rescue.Stop(ctx, serverID, hard), m.disk.Stop(ctx, serverID, hard))
}

func (m machines) Delete(ctx context.Context, serverID int64) error {
	return errors.Join(m.rescue.Delete(ctx, serverID), m.disk.Delete(ctx, serverID))
}

func (m machines) AddressesChanged(ctx context.Context, server cloud.Server) error {
	return errors.Join(m.rescue.AddressesChanged(ctx, server), m.disk.AddressesChanged(ctx, server))
}

func (m machines) close(ctx context.Context) error {
	return errors.Join(m.rescue.Close(ctx), m.disk.Close(ctx))
}

// ImageBuild says whether the image step can build an image in this lab.
type ImageBuild struct {
	Possible bool   `json:"possible"`
	Reason   string `json:"reason,omitempty"` // why not
}

// tryImageBuild finds out whether servers can listen on port 22, on an address that no other process uses.
func (lab *Lab) tryImageBuild(ctx context.Context) ImageBuild {
	l, err := lab.cfg.Network.Listen(ctx, lab.state.Slot().SSHProbe())
	if err != nil {
		return ImageBuild{Reason: "rescue systems cannot answer SSH: " + err.Error()}
	}
	if err := l.Close(); err != nil {
		return ImageBuild{Reason: "rescue systems cannot answer SSH: " + err.Error()}
	}
	return ImageBuild{Possible: true}
}
