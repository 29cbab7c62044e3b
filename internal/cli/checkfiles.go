package cli

import (
	"context"
	"errors"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/checks"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// checkFiles refuses files of the targets that can be known to be wrong without a connection.
func checkFiles(ctx context.Context, b planning.Bootstrap, targets []string) error {
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

// checkFilesAgain checks the files again where the lab has decided where the providers' schemas are.
func checkFilesAgain(ctx context.Context, r *running, before settings.Configuration, targets []string) error {
	if r.cfg.ProviderRepository == before.ProviderRepository {
		return nil
	}
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return checkFiles(ctx, b, targets)
}
