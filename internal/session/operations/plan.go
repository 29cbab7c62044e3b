package operations

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
)

// Plan asks what a run of the cluster's targets would do. It changes nothing. commands are the names of commands, which
// a mistyped target may have meant.
func Plan(ctx context.Context, k session.Cluster, commands ...string) (f forecast.Forecast, err error) {
	if err := k.Validate(ctx, commands...); err != nil {
		return f, err
	}
	if err := k.CheckRepository(); err != nil {
		return f, err
	}
	at, err := k.InspectForPlan(ctx)
	if err != nil {
		return f, err
	}
	f = newForecast(at)
	err = at.Predict(ctx, &f)
	f.WithoutSecrets(k.Caller.Hide)
	return f, err
}

func newForecast(at session.Inspection) forecast.Forecast {
	return forecast.Forecast{Kind: "plan", Cluster: at.Cfg.ClusterName, Environment: at.Environment(),
		State: string(at.Folder), Offline: at.Offline}
}
