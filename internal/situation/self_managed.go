package situation

import (
	"context"
	"errors"
	"io/fs"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/management"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

// SelfManaged is the cluster itself where it holds its own Cluster object; nil where it does not, or where there is no
// kubeconfig to ask with.
func SelfManaged(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) (*kube.Cluster,
	error) {
	self, err := connect.Cluster(tools, platform.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, management.AliveWithin)
	defer cancel()
	object, err := management.FindCluster(asking, cfg, self)
	switch {
	case err != nil:
		return nil, ExplainSilence(ctx, cfg, tools, sources, self, err)
	case object == nil:
		return nil, nil
	}
	return self, nil
}
