package operations

import (
	"context"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/ensure/releases"
	"github.com/slipway-k8s/slipway/internal/session"
)

// ReleasesOptions are the choices of RecoverReleases.
type ReleasesOptions struct {
	releases.Options
	InCluster bool                     // of the cluster in whose Pod the process runs, in place of the state folder's
	Displays  func() []session.Display // of the session that changes the state folder's cluster. Required.
}

// RecoverReleases recovers the HelmReleases that are stuck, or says which it would. The report has no kind where the
// cluster was not reached.
func RecoverReleases(ctx context.Context, c *session.Caller, q session.Request,
	o ReleasesOptions) (report releases.Report, err error) {
	if o.Threshold <= 0 {
		return report, usage.Errorf("--threshold %s: a HelmRelease is stuck when it is as it is for a time above 0, 5m for "+
			"example", o.Threshold)
	}
	o.By = "slipway " + session.Version()
	if o.InCluster || o.DryRun {
		cluster, err := session.OpenWorkload(ctx, c, q, o.InCluster)
		if err != nil {
			return report, err
		}
		return releases.Recover(ctx, cluster, func(string, ...any) {}, o.Options)
	}
	k, err := session.Load(c, q)
	if err != nil {
		return report, err
	}
	err = k.ChangeWorkload(ctx, o.Displays, func(ctx context.Context, s *session.Session, cluster *kube.Cluster) error {
		return s.Hub.Task("recover-releases", "HelmReleases that are stuck", func(say flow.Say) (err error) {
			report, err = releases.Recover(ctx, cluster, say, o.Options)
			return err
		})
	})
	return report, err
}
