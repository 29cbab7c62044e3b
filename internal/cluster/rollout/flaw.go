package rollout

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/platform"
)

// Flaw is why replacing, adding or removing control plane servers may never end with the control plane provider that is
// installed in the cluster that manages this one, and what to do first; empty: no such reason is known. Who is asked to
// agree to a rollout is told. Where none is installed yet, the configured one counts.
func Flaw(ctx context.Context, cfg config.Config, tools platform.Tools, manager *kube.Cluster) (string, error) {
	installed, err := capi.InstalledProviders(ctx, manager)
	if err != nil && !kube.Absent(err) {
		return "", err
	}
	version := installed[capi.ControlPlaneProviderName]
	if version == "" {
		version = cfg.CACPPTVersion
	}
	flaw := cfg.RolloutFlaw(version)
	if flaw == nil {
		return "", nil
	}
	return fmt.Sprintf("%s; upgrade it first: %s", flaw.Text, tools.Command("upgrade", flaw.Variable+"="+flaw.Take)), nil
}
