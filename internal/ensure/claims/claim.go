// Package claims decides which state folder may create a cluster, or recover it: by placement groups at Hetzner that
// reserve its name.
package claims

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Step is the name of the step that reserves the cluster's name.
const Step = "reserve"

const reservedEvery = 250 * time.Millisecond

// claim tries to get a claim until it has it, or knows that it is another's.
func claim(ctx context.Context, cfg config.Config, say flow.Say, by string,
	try func(context.Context, flow.Say, string) (*hetzner.Reservation, error)) (out *hetzner.Reservation, err error) {
	err = wait.Wait{What: "the reservation of " + cfg.ClusterName, Within: wait.ReservedWithin, Every: reservedEvery,
		Each: wait.ReservedWithin}.Until(ctx, say, func(ctx context.Context) (string, error) {
		out, err = try(ctx, say, by)
		var foreign *hetzner.ForeignError
		switch {
		case errors.Is(err, hetzner.ErrReserved):
			return "another run has just created it", nil
		case errors.Is(err, hetzner.ErrToken), errors.As(err, &foreign):
			return "", wait.Final(err)
		}
		return "", err
	})
	return out, err
}

// hostname is this machine's, for people; empty where it has none.
func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}
