package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	clusters "github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
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
func runRecoverReleases(ctx context.Context, c *console, a arguments, o recoverReleasesOptions) (err error) {
	if o.Threshold <= 0 {
		return usage.Errorf("--threshold %s: a HelmRelease is stuck when it is as it is for a time above 0, 5m for example",
			o.Threshold)
	}
	wanted := releases.Options{Namespace: o.Namespace, Threshold: o.Threshold, DryRun: a.Options.DryRun,
		By: "slipway " + session.Version()}
	quiet := func(string, ...any) {}
	var report releases.Report
	switch {
	case o.InCluster || a.Options.DryRun:
		cluster, opened := openedCluster(ctx, c, a, o.InCluster)
		if opened != nil {
			return opened
		}
		report, err = releases.Recover(ctx, cluster, quiet, wanted)
	default:
		err = changeCluster(ctx, c, a, func(ctx context.Context, r *running) error {
			cluster, err := clusters.Cluster(r.Tools.WithDefaults(), platform.Kubeconfig)
			if err != nil {
				return err
			}
			return r.Hub.Task("recover-releases", "HelmReleases that are stuck", func(say flow.Say) (err error) {
				report, err = releases.Recover(ctx, cluster, say, wanted)
				return err
			})
		})
	}
	if report.Kind == "" { // it was not reached
		return err
	}
	if a.Options.Output == "json" {
		return errors.Join(err, ui.PrintJSONLine(c.stdout, report))
	}
	return errors.Join(err, report.Print(c.stdout, c.width()))
}

// openedCluster opens the cluster of the state folder to read from it, or the one in whose Pod the command runs. No
// files are written, and no lab is started.
func openedCluster(ctx context.Context, c *console, a arguments, pod bool) (*kube.Cluster, error) {
	platform.RedirectLibraryLogs(io.Discard)
	if pod {
		kubeconfig, err := kube.PodKubeconfig(c.environment)
		if err != nil {
			return nil, &usage.Error{Err: fmt.Errorf("--in-cluster: %w", err)}
		}
		return kube.ConnectTrusted(kubeconfig)
	}
	_, _, cluster, err := clusterOfState(ctx, c, a)
	return cluster, err
}

// clusterOfState opens the cluster of the state folder to read from it. The configuration is that of the lab where the
// cluster is in one.
func clusterOfState(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, *kube.Cluster,
	error) {
	platform.RedirectLibraryLogs(io.Discard)
	cfg, state, err := stateWithCluster(ctx, c, a)
	if err != nil {
		return cfg, state, nil, err
	}
	environment, err := state.Environment()
	if err != nil {
		return cfg, state, nil, err
	}
	k := c.cluster(a, cfg)
	tools := k.CommonTools(state, io.Discard)
	if a.Options.Lab || environment == statedir.EnvironmentLab {
		at, err := k.Inspect(ctx, state)
		if err != nil {
			return cfg, state, nil, err
		}
		if at.Offline != "" {
			return cfg, state, nil, errors.New(at.Offline)
		}
		cfg, tools = at.Cfg, at.Tools
	}
	cluster, err := clusters.Cluster(tools.WithDefaults(), platform.Kubeconfig)
	return cfg, state, cluster, err
}

// stateWithCluster is configAndState, and refuses a state folder that has no cluster.
func stateWithCluster(ctx context.Context, c *console, a arguments) (settings.Configuration, statedir.Dir, error) {
	cfg, state, err := configAndState(ctx, c, a)
	if err != nil {
		return cfg, state, err
	}
	if _, err := state.Files().Read(platform.Kubeconfig); errors.Is(err, os.ErrNotExist) {
		return cfg, state, usage.Errorf("there is no %s of a cluster in %s: name the cluster (CLUSTER_NAME=…) or its state "+
			"folder (--state-dir)", platform.Kubeconfig, state)
	} else if err != nil {
		return cfg, state, fmt.Errorf("read the kubeconfig of cluster %s: %w", cfg.ClusterName, err)
	}
	return cfg, state, nil
}

// changeCluster runs what changes the cluster of the state folder and asks nothing of Hetzner, with the journal locked.
func changeCluster(ctx context.Context, c *console, a arguments, do func(context.Context, *running) error) error {
	cfg, _, err := stateWithCluster(ctx, c, a)
	if err != nil {
		return err
	}
	if a.Options.Lab {
		return operate(ctx, c, a, do)
	}
	if err := c.cluster(a, cfg).CheckEnvironment(ctx); err != nil {
		return err
	}
	return withAccess(ctx, c, a, cfg, session.Access{}, func(ctx context.Context, r *running) error {
		return r.Locked(ctx, func(ctx context.Context) error {
			if c.equip != nil {
				c.equip(&r.Tools)
			}
			return do(ctx, r)
		})
	})
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
