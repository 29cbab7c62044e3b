package cli

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/steps"
)

// checkFiles refuses files that can be known to be wrong without asking anybody,
// as far as the targets are made from them.
func checkFiles(ctx context.Context, plan *steps.Plan, targets []string) error {
	found, err := plan.CheckFiles(ctx, targets)
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

// checkFilesAgain checks the files again where the world has told where the
// providers' schemas lie, as the lab does.
func checkFilesAgain(ctx context.Context, r *running, before settings.Configuration, targets []string) error {
	if r.cfg.ProviderRepository == before.ProviderRepository {
		return nil
	}
	plan, err := steps.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return checkFiles(ctx, plan, targets)
}
