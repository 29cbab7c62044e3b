package situation

import (
	"context"
	"errors"
	"io/fs"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// AwaitSelfManaged is SelfManaged for a run, which begins with the answer: it asks again for a minute where the
// cluster's API does not answer, as while control plane servers join. A lost load balancer ends it at once.
func AwaitSelfManaged(ctx context.Context, say flow.Say, cfg config.Config, tools platform.Tools,
	sources render.Sources) (self *kube.Cluster, err error) {
	err = wait.Wait{What: wait.Answer.For, Within: wait.Answer.Within}.Until(ctx, say,
		func(ctx context.Context) (string, error) {
			self, err = SelfManaged(ctx, cfg, tools, sources)
			if err != nil && (IsLost(err) || !kube.Unwell(err)) {
				return "", wait.Final(err)
			}
			return "", err
		})
	return self, err
}

// SelfManaged is the cluster itself where it holds its own Cluster object; nil where it does not, or where there is no
// kubeconfig to ask with. It asks once. A kubeconfig that is not accepted is an error, unless a management cluster
// manages the cluster.
func SelfManaged(ctx context.Context, cfg config.Config, tools platform.Tools, sources render.Sources) (*kube.Cluster,
	error) {
	self, object, err := connect.HeldBy(ctx, cfg, tools, platform.Kubeconfig)
	switch {
	case self == nil && errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case self == nil && kubeconfig.Refused(err) && managedBeside(ctx, cfg, tools):
		return nil, nil // the step kubeconfig fetches another one
	case self != nil && err != nil:
		return nil, ExplainSilence(ctx, cfg, tools, sources, self, err)
	case err != nil || object == nil:
		return nil, err
	}
	return self, nil
}

// managedBeside reports whether the management cluster answers and has the Cluster object, unpaused.
func managedBeside(ctx context.Context, cfg config.Config, tools platform.Tools) bool {
	_, object, err := connect.HeldBy(ctx, cfg, tools, platform.ManagementKubeconfig)
	return err == nil && object != nil && !connect.Paused(object)
}
