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

// recoverReleasesOptions are the flags of recover-releases.
type recoverReleasesOptions struct {
	Threshold time.Duration
	Namespace string        // of the HelmReleases; empty: all
	InCluster bool          // in place of the state folder
	Image     string        // of the CronJob
	RunIn     string        // the namespace of the CronJob
	Every     time.Duration // of the CronJob; 0: releasesEvery
}

// releasesEvery is how often a CronJob recovers HelmReleases by default.
const releasesEvery = 10 * time.Minute

// runRecoverReleases recovers the HelmReleases that are stuck, or says which it would.
func runRecoverReleases(ctx context.Context, c *console, a arguments, o recoverReleasesOptions) error {
	report, err := operations.RecoverReleases(ctx, c.caller(), a.request(), operations.ReleasesOptions{
		Options:   releases.Options{Namespace: o.Namespace, Threshold: o.Threshold, DryRun: a.Options.DryRun},
		InCluster: o.InCluster, Displays: func() []session.Display { return runDisplays(c, a.Options) }})
	if report.Kind == "" { // it was not reached
		return err
	}
	if a.Options.Output == "json" {
		return errors.Join(err, ui.PrintJSONLine(c.stdout, report))
	}
	return errors.Join(err, report.Print(c.stdout, c.width()))
}

// runReleasesCronJob prints a CronJob that recovers HelmReleases. It opens no connection.
func runReleasesCronJob(_ context.Context, c *console, _ arguments, o recoverReleasesOptions) error {
	schedule, err := cronSchedule(cmp.Or(o.Every, releasesEvery))
	if err != nil {
		return err
	}
	if o.Threshold <= 0 {
		return usage.Errorf("--threshold %s is not above 0", o.Threshold)
	}
	return releases.CronJob{Image: o.Image, Schedule: schedule, RunIn: o.RunIn, Namespace: o.Namespace,
		Threshold: o.Threshold}.Write(c.stdout)
}

func newRecoverReleasesCommand(in *invocation) *cobra.Command {
	var own recoverReleasesOptions
	cmd := in.command("recover-releases", groupRecovery,
		"recover Flux HelmReleases that are stuck: with a pending record of Helm, or deployed and never reported",
		func(ctx context.Context, c *console, a arguments) error { return runRecoverReleases(ctx, c, a, own) })
	addDryRunFlag(cmd, &in.arguments.Options, "only say which are stuck, and what would be done")
	addReleasesFlags(cmd, &own)
	cmd.Flags().BoolVar(&own.InCluster, "in-cluster", false,
		"recover those of the cluster in whose Pod the command runs, by its ServiceAccount; no state folder is used")
	cmd.AddCommand(newReleasesCronJobCommand(in))
	return cmd
}

func newReleasesCronJobCommand(in *invocation) *cobra.Command {
	var own recoverReleasesOptions
	cmd := in.command("cronjob", "", "print a CronJob that recovers stuck HelmReleases, with the rights that it needs",
		func(ctx context.Context, c *console, a arguments) error { return runReleasesCronJob(ctx, c, a, own) })
	addReleasesFlags(cmd, &own)
	addEveryFlag(cmd, &own.Every, "run every `10m`, which is the default")
	cmd.Flags().StringVar(&own.Image, "image", "", "`IMAGE` that has this command as its entry point")
	cmd.Flags().StringVar(&own.RunIn, "run-in", "flux-system", "`NAMESPACE` in which the CronJob runs")
	return cmd
}

func addReleasesFlags(cmd *cobra.Command, o *recoverReleasesOptions) {
	cmd.Flags().DurationVar(&o.Threshold, "threshold", releases.DefaultThreshold,
		"stuck is what has been as it is for this `time`; a pending record: at least for the time-out of the operation")
	cmd.Flags().StringVar(&o.Namespace, "namespace", "", "only the HelmReleases of `NAMESPACE` (default: all)")
}
