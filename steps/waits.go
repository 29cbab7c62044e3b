package steps

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
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
