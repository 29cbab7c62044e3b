package steps

import (
	"context"
	"fmt"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
)

// CloudController is Hetzner's cloud controller manager in the workload cluster.
type CloudController struct {
	Release   Release     `json:"release"`
	Secret    TokenSecret `json:"secret"`
	NetworkID int64       `json:"networkId"` // of the private network at Hetzner
}

// runHCloudCCM creates the Secret, which nothing else creates, restarts what has read another content of it, the CSI
// driver too, and installs the CCM that reads it. Only the CCM sets provider IDs.
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
	namespace := render.HCloudCCMChart(r.cfg, r.sources).Namespace
	say("writing Secret %s/%s for network %d", namespace, config.CCMSecretName, network)
	out := CloudController{NetworkID: network, Secret: TokenSecret{Namespace: namespace, Name: config.CCMSecretName}}
	if out.Secret.UID, err = apply.CloudControllerSecret(ctx, r.tools, say, workload, namespace, network); err != nil {
		return CloudController{}, err
	}
	if err := apply.RestartReaders(ctx, say, workload, namespace, config.CCMSecretName); err != nil {
		return CloudController{}, err
	}
	out.Release, err = install(ctx, r.cfg, r.tools, r.sources, say, render.HCloudCCMChart(r.cfg, r.sources), nil)
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
	if v := verifyToken(ctx, r.tools, workload, was.Secret,
		apply.CloudControllerData(r.tools, network)); v.Answer() != flow.AnswerHolds {
		return v
	}
	stale, _, err := apply.StaleReaders(ctx, workload, was.Secret.Namespace, was.Secret.Name)
	if err != nil {
		return flow.Unknown(err)
	}
	if len(stale) > 0 {
		return flow.Gone("%s has not been restarted since Secret %s/%s was replaced", kube.Describe(stale[0]),
			was.Secret.Namespace, was.Secret.Name)
	}
	return r.verify(ctx, was.Release)
}
