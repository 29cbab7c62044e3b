package talos

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configresource "github.com/siderolabs/talos/pkg/machinery/resources/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	return is, withoutQuotes(err)
}

// withoutQuotes is an error without the lines behind its first one, which may quote a machine configuration: fields
// that this client does not know, or the difference to another configuration.
func withoutQuotes(err error) error {
	if err == nil {
		return nil
	}
	first, _, more := strings.Cut(err.Error(), "\n")
	if !more {
		return err
	}
	if refused := (*callError)(nil); errors.As(err, &refused) {
		message, _, _ := strings.Cut(refused.message, "\n")
		return &callError{doing: refused.doing, message: message, err: refused.err}
	}
	return errors.New(first)
}

// Service is a service of a node.
type Service struct {
	State   string // "Running", "Preparing", …; empty: the node has none of that name
	Healthy bool   // its health check passes
	// Started is when it came to run last, by the node's clock; zero: the node does not remember.
	Started time.Time
}

// Service asks a node for one of its services.
func (c *Credentials) Service(ctx context.Context, r Route, name string) (s Service, err error) {
	err = c.call(ctx, r, "ask "+r.String()+" for its service "+name, func(ctx context.Context, t *client.Client) error {
		found, err := t.ServiceInfo(ctx, name)
		for _, one := range found {
			s.State, s.Healthy = one.Service.GetState(), one.Service.GetHealth().GetHealthy()
			for _, e := range one.Service.GetEvents().GetEvents() {
				if at := e.GetTs().AsTime(); e.GetState() == "Running" && at.After(s.Started) {
					s.Started = at
				}
			}
		}
		return err
	})
	return s, err
}

// ApplyMachineConfig has a node run with another machine configuration from now on, and refuses one that is not valid.
// The server does not reboot: services whose configuration has changed are restarted, and what Talos changes only as it
// boots waits for the next boot.
func (c *Credentials) ApplyMachineConfig(ctx context.Context, r Route, wanted []byte) error {
	return c.sendMachineConfig(ctx, r, "apply a machine configuration to "+r.String(),
		&machine.ApplyConfigurationRequest{Data: wanted})
}

// CheckMachineConfig is the error that ApplyMachineConfig would return for a machine configuration. It changes nothing.
func (c *Credentials) CheckMachineConfig(ctx context.Context, r Route, wanted []byte) error {
	return c.sendMachineConfig(ctx, r, "check a machine configuration for "+r.String(),
		&machine.ApplyConfigurationRequest{Data: wanted, DryRun: true})
}

// ConfigRefused tells whether a node has refused a machine configuration, so that sending it again is of no use.
func ConfigRefused(err error) bool {
	return slices.Contains([]codes.Code{codes.InvalidArgument, codes.Unimplemented, codes.PermissionDenied},
		status.Code(err))
}

func (c *Credentials) sendMachineConfig(ctx context.Context, r Route, doing string,
	request *machine.ApplyConfigurationRequest) error {
	request.Mode = machine.ApplyConfigurationRequest_NO_REBOOT
	return withoutQuotes(c.call(ctx, r, doing, func(ctx context.Context, t *client.Client) error {
		_, err := t.ApplyConfiguration(ctx, request)
		return err
	}))
}
