package pivot

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// lookingWithin is how long an API server that answers may take to serve every kind that it knows.
const lookingWithin = time.Minute

// Waits are the waits of a pivot; providers are those of the installation of the providers.
func Waits(c config.Config, providers []flow.Wait) []flow.Wait {
	waits := []flow.Wait{{For: "both clusters to tell what they hold, twice", Within: 2 * lookingWithin}, wait.Nodes(c)}
	return append(append(waits, providers...),
		flow.Wait{For: "the cluster's own controllers (NODES_TIMEOUT)", Within: c.NodesTimeout.D()})
}

// Deadline of a pivot. It leaves wait.Overhead beside the longest time that its waits may add up to by default.
func Deadline(c config.Config) time.Duration {
	return 2*c.ProvidersTimeout.D() + 2*c.NodesTimeout.D() + 2*lookingWithin + wait.RetryFor + wait.Overhead
}
