package steps

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/wait"
)

// What the steps wait for, as they declare it: the same in every plan that has the step.

func waitRelease(c config.Config) []flow.Wait {
	return []flow.Wait{wait.Download,
		{For: "the kinds of the chart, or another process's helm (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()},
		{For: "Helm's own work, which may begin when that wait is about to end (RELEASE_TIMEOUT)",
			Within: c.ReleaseTimeout.D()},
		{For: "the workloads (RELEASE_TIMEOUT)", Within: c.ReleaseTimeout.D()}}
}

func releaseDeadline(c config.Config) time.Duration { return 3*c.ReleaseTimeout.D() + wait.Overhead }

func waitPivot(c config.Config, providers []flow.Wait) []flow.Wait {
	waits := []flow.Wait{{For: "both clusters to tell what they hold, twice", Within: 2 * lookingWithin}, wait.Nodes(c)}
	return append(append(waits, providers...),
		flow.Wait{For: "the cluster's own controllers (NODES_TIMEOUT)", Within: c.NodesTimeout.D()})
}

// pivotDeadline leaves its overhead beside the longest time that the waits may add up to by default.
func pivotDeadline(c config.Config) time.Duration {
	return 2*c.ProvidersTimeout.D() + 2*c.NodesTimeout.D() + 2*lookingWithin + wait.RetryFor + wait.Overhead
}
