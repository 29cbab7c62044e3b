package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Predict finds out what a run of the look's targets would do. It changes nothing. What is said of the state, and of
// the environment, the caller has set in f.
func (l Inspection) Predict(ctx context.Context, f *forecast.Forecast) error {
	l.Tools.ServerTakes = runs.ReadDurations(l.Folder, f.Environment).Server()
	b, err := planning.New(l.Cfg.Config, l.Tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return l.predict(ctx, f, b, l.Folder)
}

// predict adds to a forecast what a run of the targets would do.
func (k Cluster) predict(ctx context.Context, f *forecast.Forecast, b planning.Bootstrap, state statedir.Dir) error {
	targets, err := k.targetsNow(ctx, b, state.Journal())
	if err != nil {
		return err
	}
	f.Files = b.Sources.List()
	f.Remarks = k.Cfg.Remarks(time.Now())
	f.Begun = unfinished.In(ctx, b.Tools, b.Cfg.ClusterName, statedir.AtWork(state))
	if f.Offline == "" {
		f.Remarks = append(f.Remarks, k.Cfg.UpgradeRemarks(nil, b.Seen(ctx)...)...)
		if f.Existing, err = k.Existing(ctx, b.Tools); err != nil {
			return err
		}
		f.Comparison = forecast.Compare(ctx, b, state.Journal(), k.Cfg, append([]string{}, k.Targets...), f.Begun)
	}
	if err := f.Ask(ctx, b, b.Plan.Graph, state.Journal(), targets, runs.ReadDurations(state, f.Environment)); err != nil {
		return err
	}
	return k.renderCharts(ctx, f, b)
}

// renderCharts renders the charts that the steps would install. One that does not render ends the run there.
func (k Cluster) renderCharts(ctx context.Context, f *forecast.Forecast, b planning.Bootstrap) error {
	would := f.Runs()
	all := slices.DeleteFunc(render.AllCharts(b.Cfg, b.Sources), func(in render.Chart) bool {
		return !slices.Contains(would, in.Program) && !slices.Contains(would, steps.AddonStep(in.Program))
	})
	if f.Offline != "" && f.Environment == statedir.EnvironmentLab {
		for _, in := range all {
			f.Unchecked = append(f.Unchecked, fmt.Sprintf("chart %s %s: %s", in.Name, in.Version, f.Offline))
		}
		return nil
	}
	download := k.Caller.Charts
	if download == nil {
		download = func(ctx context.Context, from kube.ChartSource) ([]byte, error) {
			return kube.DownloadChart(ctx, from, b.Tools.Files.Path("helm"), io.Discard)
		}
	}
	wrong, unchecked := checks.Charts(ctx, b.Cfg, b.Sources, all, download)
	f.Unchecked = unchecked
	var errs []error
	for _, w := range wrong {
		errs = append(errs, fmt.Errorf("%s; %s", k.Caller.Hide.Text(w.Reason), w.Hint))
	}
	if len(errs) > 0 {
		return &usage.Error{Err: errors.Join(errs...)}
	}
	return nil
}

// Existing is claims.FindExisting, where Hetzner can be asked and has not gone silent: then the rest says so.
func (k Cluster) Existing(ctx context.Context, tools platform.Tools) (*claims.ExistingCluster, error) {
	if tools.Hetzner == nil {
		return nil, nil
	}
	found, err := wait.Promptly(ctx, func(ctx context.Context) (*claims.ExistingCluster, error) {
		return claims.FindExisting(ctx, k.Cfg.Config, tools)
	})
	if err != nil {
		return nil, context.Cause(ctx)
	}
	return found, nil
}
