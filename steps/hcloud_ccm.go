package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/apply"
	"github.com/slipway-k8s/slipway/internal/charts"
	"github.com/slipway-k8s/slipway/internal/connect"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/platform"
)

// CloudController is Hetzner's cloud controller manager in the workload cluster.
type CloudController struct {
	Release   Release     `json:"release"`
	Secret    TokenSecret `json:"secret"`
	NetworkID int64       `json:"networkId"` // of the private network at Hetzner
}

// runHCloudCCM creates the Secret, which nothing else creates, and installs the CCM that reads it. Only the CCM sets
// provider IDs.
func (r releaseStep) runHCloudCCM(ctx context.Context, say flow.Say) (CloudController, error) {
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return CloudController{}, err
	}
	network, err := hetzner.NetworkID(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return CloudController{}, err
	}
	if network == 0 {
		return CloudController{},
			fmt.Errorf("cluster %s has no network at Hetzner: its HetznerCluster says why", r.cfg.ClusterName)
	}
	namespace := charts.HCloudCCM(r.cfg, r.sources).Namespace
	say("writing Secret %s/%s for network %d", namespace, config.CCMSecretName, network)
	out := CloudController{NetworkID: network, Secret: TokenSecret{Namespace: namespace, Name: config.CCMSecretName}}
	if out.Secret.UID, err = apply.CloudControllerSecret(ctx, r.tools, say, workload, namespace, network); err != nil {
		return CloudController{}, err
	}
	out.Release, err = install(ctx, r.cfg, r.tools, r.sources, say, charts.HCloudCCM(r.cfg, r.sources), nil)
	return out, err
}

// verifyHCloudCCM asks for the network at Hetzner too: a cluster restored into a new network has another ID.
func (r releaseStep) verifyHCloudCCM(ctx context.Context, was CloudController) flow.Verdict {
	network, err := hetzner.NetworkID(ctx, r.tools.Hetzner, r.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if network != was.NetworkID {
		return flow.Gone("the cluster's network at Hetzner is %d instead of %d", network, was.NetworkID)
	}
	workload, err := connect.Cluster(r.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	if v := verifySecret(ctx, workload, was.Secret,
		apply.CloudControllerData(r.tools, network)); v.Answer() != flow.AnswerHolds {
		return v
	}
	return r.verify(ctx, was.Release)
}
