package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// releasesEvery is how often a CronJob recovers HelmReleases by default.
const releasesEvery = 10 * time.Minute

// runRecoverReleases recovers the HelmReleases that are stuck, or says which it would.
func runRecoverReleases(ctx context.Context, c *console, a arguments, o operations.ReleasesOptions) error {
	o.DryRun, o.Displays = a.Options.DryRun, func() []session.Display { return runDisplays(c, a.Options) }
	report, err := operations.RecoverReleases(ctx, c.caller(), a.request(), o)
	if report.Kind == "" { // it was not reached
		return err
	}
	if a.Options.Output == "json" {
		return errors.Join(err, ui.PrintJSONLine(c.stdout, report))
	}
	return errors.Join(err, report.Print(c.stdout, c.width()))
}

// runReleasesCronJob prints a CronJob that recovers HelmReleases. It opens no connection.
func runReleasesCronJob(c *console, job releases.CronJob, every time.Duration) (err error) {
	if job.Schedule, err = cronSchedule(cmp.Or(every, releasesEvery)); err != nil {
		return err
	}
	if job.Threshold <= 0 {
		return usage.Errorf("--threshold %s is not above 0", job.Threshold)
	}
	return job.Write(c.stdout)
}

func newRecoverReleasesCommand(in *invocation) *cobra.Command {
	var own operations.ReleasesOptions
	cmd := in.command("recover-releases", groupRecovery,
		"recover Flux HelmReleases that are stuck: with a pending record of Helm, or deployed and never reported",
		func(ctx context.Context, c *console, a arguments) error { return runRecoverReleases(ctx, c, a, own) })
	addDryRunFlag(cmd, &in.arguments.Options, "only say which are stuck, and what would be done")
	addReleasesFlags(cmd, &own.Threshold, &own.Namespace)
	cmd.Flags().BoolVar(&own.InCluster, "in-cluster", false,
		"recover those of the cluster in whose Pod the command runs, by its ServiceAccount; no state folder is used")
	cmd.AddCommand(newReleasesCronJobCommand(in))
	return cmd
}

func newReleasesCronJobCommand(in *invocation) *cobra.Command {
	var own releases.CronJob
	var every time.Duration
	cmd := in.command("cronjob", "", "print a CronJob that recovers stuck HelmReleases, with the rights that it needs",
		func(_ context.Context, c *console, _ arguments) error { return runReleasesCronJob(c, own, every) })
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
