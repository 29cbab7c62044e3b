package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/charts"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/begun"
	"github.com/slipway-k8s/slipway/internal/operation/drift"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// runPlan prints what a run with these targets would do. It changes nothing.
func runPlan(ctx context.Context, c *console, a arguments) error {
	if len(a.Targets) > 0 && a.Targets[0] == "plan" { // with -n the targets are the run's own
		a.Targets = a.Targets[1:]
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if _, err := validateOffline(ctx, c, a, cfg); err != nil {
		return err
	}
	if err := refuseMissingRepository(cfg, a.Options.Lab); err != nil {
		return err
	}
	if err := checkEnvironment(ctx, c, a, cfg); err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	cfg, tools, offline, err := predictionTools(ctx, c, a.Options, cfg, state)
	if err != nil {
		return err
	}
	f := forecast.Forecast{Kind: "plan", Cluster: cfg.ClusterName, Environment: environmentOf(a.Options), State: string(state),
		Offline: offline}
	if err := predictRun(ctx, c, &f, cfg, tools, state, a.Targets); err != nil {
		return err
	}
	return printForecast(c, f, a.Options.Output)
}

// printForecast prints a forecast, without the secrets that others may have
// repeated.
func printForecast(c *console, f forecast.Forecast, output string) error {
	f.WithoutSecrets(c.hide)
	if output == "json" {
		return ui.PrintJSON(c.stdout, f)
	}
	return f.Print(c.stdout, c.width())
}

// predictRun finds out what a run of targets, as they were written, would do.
func predictRun(ctx context.Context, c *console, f *forecast.Forecast, cfg settings.Configuration, tools platform.Tools,
	state statedir.Dir, words []string) error {
	took := runs.ReadDurations(state, f.Environment)
	tools.ServerTakes = took.Server()
	b, err := planning.New(cfg.Config, tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	targets, err := targetsNow(ctx, b.Plan, state.Journal(), words)
	if err != nil {
		return err
	}
	f.Files = b.Sources.List()
	f.Remarks = cfg.Remarks(time.Now())
	f.Begun = begun.In(ctx, b.Tools, b.Cfg.ClusterName, statedir.AtWork(state))
	if f.Offline == "" {
		f.Remarks = append(f.Remarks, cfg.UpgradeRemarks(nil, b.Seen(ctx)...)...)
		f.Existing, err = existingCluster(ctx, b.Cfg, b.Tools)
		if err != nil {
			return err
		}
		f.Comparison = drift.Compare(ctx, b, state.Journal(), cfg, append([]string{}, words...), f.Begun)
	}
	if err := f.Ask(ctx, b, b.Plan.Graph, state.Journal(), targets, took); err != nil {
		return err
	}
	return renderCharts(ctx, c, f, b)
}

// renderCharts renders the charts that the steps would install. One that does not render ends the run there.
func renderCharts(ctx context.Context, c *console, f *forecast.Forecast, b planning.Bootstrap) error {
	would := f.Runs()
	all := slices.DeleteFunc(charts.All(b.Cfg, b.Sources), func(in charts.Installation) bool {
		return !slices.Contains(would, in.Program) && !slices.Contains(would, steps.AddonStep(in.Program))
	})
	if f.Offline != "" && f.Environment == statedir.EnvironmentLab {
		for _, in := range all {
			f.Unchecked = append(f.Unchecked, fmt.Sprintf("chart %s %s: %s", in.Name, in.Version, f.Offline))
		}
		return nil
	}
	download := c.charts
	if download == nil {
		download = func(ctx context.Context, from kube.ChartSource) ([]byte, error) {
			return kube.DownloadChart(ctx, from, b.Tools.Files.Path("helm"), io.Discard)
		}
	}
	wrong, unchecked := checks.Charts(ctx, b.Cfg, b.Sources, all, download)
	f.Unchecked = unchecked
	var errs []error
	for _, w := range wrong {
		errs = append(errs, fmt.Errorf("%s; %s", c.hide.Text(w.Reason), w.Hint))
	}
	if len(errs) > 0 {
		return &usage.Error{Err: errors.Join(errs...)}
	}
	return nil
}

// existingCluster is claims.FindExisting, where Hetzner can be asked and has not gone silent: then the rest says so.
func existingCluster(ctx context.Context, cfg config.Config, tools platform.Tools) (*claims.ExistingCluster, error) {
	if tools.Hetzner == nil {
		return nil, nil
	}
	found, err := wait.Promptly(ctx, func(ctx context.Context) (*claims.ExistingCluster, error) {
		return claims.FindExisting(ctx, cfg, tools)
	})
	if err != nil {
		return nil, context.Cause(ctx)
	}
	return found, nil
}

// predictionTools are tools to read what a run would work with, also before the first one. Where that does not answer,
// offline says why.
func predictionTools(ctx context.Context, c *console, o options, cfg settings.Configuration,
	state statedir.Dir) (settings.Configuration, platform.Tools, string, error) {
	cfg, tools, offline, err := lookingTools(ctx, c, o, cfg, state)
	if err != nil || tools.Hetzner != nil {
		return cfg, tools, offline, err
	}
	if o.Lab {
		snapshot, err := state.Journal().Load(ctx)
		if err == nil && len(snapshot.Steps) > 0 {
			err = fmt.Errorf("%s: without it the plan would compare what was created in the lab "+
				"with what is configured for Hetzner", offline)
		}
		return cfg, tools, offline, err
	}
	tools, offline, err = hetznerTools(ctx, c, cfg, tools)
	return cfg, tools, offline, err
}

// agree shows the operator at a terminal what a real run would do, and asks once, where it would change something. It
// does not ask in a pipe, with --yes, or in the lab, where nothing costs anything.
func agree(ctx context.Context, r *running) error {
	f := forecast.Forecast{Cluster: r.cfg.ClusterName, Environment: r.environment(), State: string(r.state)}
	return agreeTo(ctx, r, &f, func() error { return predictRun(ctx, r.console, &f, r.cfg, r.tools, r.state, r.asked) })
}

// agreeTo makes a forecast and asks, where the operator can be asked.
func agreeTo(ctx context.Context, r *running, f *forecast.Forecast, foresee func() error) error {
	if r.options.Lab || r.options.Yes || r.options.Output != "text" || r.console.width() == 0 || !canPrompt(r.console) {
		return nil
	}
	if err := r.hub.Task("plan", "what is to be done", func(flow.Say) error { return foresee() }); err != nil {
		return err
	}
	if !f.Changes() {
		return nil
	}
	var text strings.Builder
	if err := f.Print(&text, r.console.width()); err != nil {
		return err
	}
	fmt.Fprintf(r.console.stdout, "%s\n", r.console.hide.Text(text.String()))
	if err := confirm(ctx, r.console, "Go ahead? [yes/no] ", "yes"); err != nil {
		return err
	}
	r.tools.Agreed = f.Agreed()
	return nil
}

func newPlanCommand(in *invocation) *cobra.Command {
	cmd := in.command("plan [TARGET…]", groupLook,
		"show what a run would do with each step and why, what it creates and costs, and how long it takes", runPlan)
	cmd.ValidArgsFunction = completeTargets
	return cmd
}
