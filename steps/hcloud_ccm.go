package steps

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
func (s *Set) runHCloudCCM(ctx context.Context, say flow.Say, workload *kube.Cluster) (CloudController, error) {
	network, err := hetzner.NetworkID(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return CloudController{}, err
	}
	if network == 0 {
		return CloudController{},
			fmt.Errorf("cluster %s has no network at Hetzner: its HetznerCluster says why", s.cfg.ClusterName)
	}
	namespace := render.HCloudCCMChart(s.cfg, s.sources).Namespace
	say("writing Secret %s/%s for network %d", namespace, config.CCMSecretName, network)
	out := CloudController{NetworkID: network, Secret: TokenSecret{Namespace: namespace, Name: config.CCMSecretName}}
	if out.Secret.UID, err = apply.CloudControllerSecret(ctx, s.cfg, s.tools, say, workload, namespace, network); err != nil {
		return CloudController{}, err
	}
	if err := apply.RestartReaders(ctx, say, workload, namespace, config.CCMSecretName); err != nil {
		return CloudController{}, err
	}
	out.Release, err = s.install(ctx, say, workload, render.HCloudCCMChart(s.cfg, s.sources), nil)
	return out, err
}

// verifyHCloudCCM asks for the network at Hetzner too: a cluster restored into a new network has another ID.
func (s *Set) verifyHCloudCCM(ctx context.Context, was CloudController) flow.Verdict {
	network, err := hetzner.NetworkID(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if network != was.NetworkID {
		return flow.Gone("the cluster's network at Hetzner is %d instead of %d", network, was.NetworkID)
	}
	workload, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	is := &corev1.Secret{}
	if err := workload.Get(ctx, client.ObjectKey{Namespace: was.Secret.Namespace, Name: was.Secret.Name}, is); err != nil {
		return kube.Verdict(fmt.Errorf("get Secret %s/%s: %w", was.Secret.Namespace, was.Secret.Name, err))
	}
	if v := s.verifyToken(ctx, workload, was.Secret,
		apply.CloudControllerData(s.cfg, s.tools, network, is)); v.Answer() != flow.AnswerHolds {
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
	return s.verifyRelease(ctx, workload, was.Release)
}
