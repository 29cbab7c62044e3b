package talos

import (
	"context"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configresource "github.com/siderolabs/talos/pkg/machinery/resources/config"
)

// MachineConfig is the machine configuration that a node runs with. It has every secret of the cluster that the node
// has.
func (c *Credentials) MachineConfig(ctx context.Context, r Route) (is config.Provider, err error) {
	doing := "read the machine configuration of " + r.String()
	err = c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) error {
		active, err := safe.StateGetByID[*configresource.MachineConfig](ctx, t.COSI, configresource.ActiveID)
		if err != nil {
			return err
		}
		is = active.Provider()
		return nil
	})
	return is, err
}

// ApplyMachineConfig has a node run with another machine configuration from now on, and refuses one that is not valid.
// The server does not reboot: services whose configuration has changed are restarted, and what Talos changes only as it
// boots waits for the next boot.
func (c *Credentials) ApplyMachineConfig(ctx context.Context, r Route, wanted []byte) error {
	return c.call(ctx, r, "apply a machine configuration to "+r.String(),
		func(ctx context.Context, t *client.Client) error {
			_, err := t.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{Data: wanted,
				Mode: machine.ApplyConfigurationRequest_NO_REBOOT})
			return err
		})
}
