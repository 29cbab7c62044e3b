package session

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/provider/local"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// OfflineTools are tools without clients.
func OfflineTools(cfg settings.Configuration) platform.Tools {
	tools := platform.Tools{Overrides: cfg.Overrides}
	if cfg.ManagementProvider() == config.ManagementLocal {
		tools.Management = local.New(lab.LocalManagement{}, nil)
	} else {
		tools.Management = kind.NewProvider(cfg.Config, platform.Files{}, false, io.Discard, nil)
	}
	return tools
}

// PlanOffline builds the plan without clients. Every error is a usage.Error.
func (k Cluster) PlanOffline() (planning.Bootstrap, error) {
	b, err := planning.New(k.Cfg.Config, OfflineTools(k.Cfg))
	if err == nil {
		err = checks.Values(b.Cfg, b.Sources)
	}
	if err != nil {
		return b, &usage.Error{Err: err}
	}
	return b, nil
}

// Validate builds the plan without clients, so that mistakes in the configuration and its files, and unknown targets, are
// found before anything is made. commands are other words that the caller knows (ResolveTargets).
func (k Cluster) Validate(ctx context.Context, commands ...string) error {
	b, targets, err := k.validTargets(commands...)
	if err != nil {
		return err
	}
	if err := CheckFiles(ctx, b, targets); err != nil {
		return err
	}
	return k.checkBudget(b, targets)
}

// ValidateWithoutFiles is Validate for what applies none of the files.
func (k Cluster) ValidateWithoutFiles(commands ...string) error {
	_, _, err := k.validTargets(commands...)
	return err
}

func (k Cluster) validTargets(commands ...string) (planning.Bootstrap, []string, error) {
	k.NoteLiterals()
	if err := k.CheckLab(); err != nil {
		return planning.Bootstrap{}, nil, err
	}
	b, err := k.PlanOffline()
	if err != nil {
		return b, nil, err
	}
	targets, err := ResolveTargets(k.Targets, b.Plan, false, commands...)
	return b, targets, err
}

// CheckLab refuses a rehearsal of what cannot become ready in a lab.
func (k Cluster) CheckLab() error {
	if !k.Lab {
		return nil
	}
	err := k.Cfg.NotInLab(settings.DefaultConfigFile, func(values string) string { return "--lab " + values })
	if err != nil {
		return &usage.Error{Err: err}
	}
	return nil
}

// checkBudget refuses a deadline of the run that its steps may exceed though each keeps its own.
func (k Cluster) checkBudget(b planning.Bootstrap, targets []string) error {
	if k.Cfg.BootstrapTimeout == 0 {
		return nil
	}
	if err := b.Plan.Graph.Fits(k.Cfg.BootstrapTimeout.D(), k.Parallel, targets...); err != nil {
		return usage.Errorf("BOOTSTRAP_TIMEOUT: %w", err)
	}
	return nil
}

// CheckFiles refuses files of the targets that can be known to be wrong without a connection.
func CheckFiles(ctx context.Context, b planning.Bootstrap, targets []string) error {
	foreseen, err := b.Plan.Graph.Predict(ctx, flow.Memory(), targets, false)
	if _, sealed := errors.AsType[*flow.SealedError](err); sealed {
		return nil // the run itself explains it better
	}
	if err != nil {
		return &usage.Error{Err: err}
	}
	if !slices.ContainsFunc(foreseen, func(f flow.Prediction) bool { return f.Name == b.Plan.Cluster.Name() }) {
		return nil
	}
	found, err := checks.Manifests(b.Cfg, b.Sources)
	if err != nil {
		return &usage.Error{Err: err}
	}
	var errs []error
	for _, e := range found {
		errs = append(errs, e)
	}
	if len(errs) == 0 {
		return nil
	}
	return &usage.Error{Err: errors.Join(errs...)}
}
