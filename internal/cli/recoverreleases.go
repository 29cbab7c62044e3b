package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// releasesEvery is how often a CronJob recovers HelmReleases by default.
const releasesEvery = 10 * time.Minute

// runRecoverReleases recovers the HelmReleases that are stuck, or says which it would.
func runRecoverReleases(ctx context.Context, c *call, o operations.ReleasesOptions) error {
	o.DryRun, o.Displays = c.DryRun, func() []session.Display { outliveReaders(); return c.displays() }
	report, err := operations.RecoverReleases(ctx, c.caller(), c.Request, o)
	if report.Kind == "" { // it was not reached
		return err
	}
	return errors.Join(err, c.printLine(report, report.Print))
}

// runReleasesCronJob prints a CronJob that recovers HelmReleases. It opens no connection.
func runReleasesCronJob(c *call, job releases.CronJob, every time.Duration) (err error) {
	if job.Schedule, err = cronSchedule(cmp.Or(every, releasesEvery)); err != nil {
		return err
	}
	if job.Threshold <= 0 {
		return usage.Errorf("--threshold %s is not above 0", job.Threshold)
	}
	return job.Write(c.stdout)
}

func newRecoverReleasesCommand(c *call) *cobra.Command {
	var own operations.ReleasesOptions
	cmd := c.command("recover-releases", groupRecovery,
		"recover Flux HelmReleases that are stuck: with a pending record of Helm, or deployed and never reported",
		func(ctx context.Context, c *call) error { return runRecoverReleases(ctx, c, own) })
	addDryRunFlag(cmd, &c.arguments, "only say which are stuck, and what would be done")
	addReleasesFlags(cmd, &own.Threshold, &own.Namespace)
	cmd.Flags().BoolVar(&own.InCluster, "in-cluster", false,
		"recover those of the cluster in whose Pod the command runs, by its ServiceAccount; no state folder is used")
	cmd.AddCommand(newReleasesCronJobCommand(c))
	return cmd
}

func newReleasesCronJobCommand(c *call) *cobra.Command {
	var own releases.CronJob
	var every time.Duration
	cmd := c.command("cronjob", "", "print a CronJob that recovers stuck HelmReleases, with the rights that it needs",
		func(_ context.Context, c *call) error { return runReleasesCronJob(c, own, every) })
	addReleasesFlags(cmd, &own.Threshold, &own.Namespace)
	addEveryFlag(cmd, &every, "run every `10m`, which is the default")
	cmd.Flags().StringVar(&own.Image, "image", "", "`IMAGE` that has this command as its entry point")
	cmd.Flags().StringVar(&own.RunIn, "run-in", "flux-system", "`NAMESPACE` in which the CronJob runs")
	return cmd
}

func addReleasesFlags(cmd *cobra.Command, threshold *time.Duration, namespace *string) {
	cmd.Flags().DurationVar(threshold, "threshold", releases.DefaultThreshold,
		"stuck is what has been as it is for this `time`; a pending record: at least for the time-out of the operation")
	cmd.Flags().StringVar(namespace, "namespace", "", "only the HelmReleases of `NAMESPACE` (default: all)")
}
