package steps

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/bootstrap"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Secret that the chart's values, bootstrap/hcloud-ccm-values.yaml, refer to.
const (
	ccmSecretName = "hcloud"
	ccmTokenKey   = "token"
	ccmNetworkKey = "network"
)

// CloudController is Hetzner's cloud controller manager in the workload cluster.
type CloudController struct {
	Release   Release     `json:"release"`
	Secret    TokenSecret `json:"secret"`
	NetworkID int64       `json:"networkId"` // of the private network at Hetzner
}

func (b *bootstrapper) hcloudCCM() installation {
	return installation{from(bootstrap.HCloudCCM(), b.cfg.HCloudCCMRepository), b.cfg.HCloudCCMVersion, b.sources.hcloudCCM}
}

// installHCloudCCM makes the Secret that nobody else makes, and installs the CCM that reads it. Provider IDs are the
// CCM's alone to set.
func (b *bootstrapper) installHCloudCCM(ctx context.Context, say flow.Say) (CloudController, error) {
	workload, err := b.connect(kubeconfigFile)
	if err != nil {
		return CloudController{}, err
	}
	network, err := hetzner.NetworkID(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return CloudController{}, err
	}
	if network == 0 {
		return CloudController{}, fmt.Errorf("cluster %s has no network at Hetzner: its HetznerCluster says why", b.cfg.ClusterName)
	}
	namespace := b.hcloudCCM().Namespace
	say("writing Secret %s/%s for network %d", namespace, ccmSecretName, network)
	out := CloudController{NetworkID: network, Secret: TokenSecret{Namespace: namespace, Name: ccmSecretName}}
	if out.Secret.UID, err = b.applyCCMSecret(ctx, say, workload, namespace, network); err != nil {
		return CloudController{}, err
	}
	out.Release, err = b.install(ctx, say, b.hcloudCCM())
	return out, err
}

func (b *bootstrapper) applyCCMSecret(ctx context.Context, say flow.Say, workload *kube.Cluster, namespace string, network int64) (uid string, err error) {
	data := map[string][]byte{}
	for key, value := range b.ccmSecret(network) {
		data[key] = []byte(value)
	}
	return applySecret(ctx, say, workload, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ccmSecretName},
		Data:       data,
	})
}

func (b *bootstrapper) ccmSecret(network int64) map[string]string {
	return map[string]string{ccmTokenKey: b.tools.Token.Reveal(), ccmNetworkKey: strconv.FormatInt(network, 10)}
}

// hcloudCCMStands asks for the network at Hetzner too: a cluster restored into a new network has another ID.
func (b *bootstrapper) hcloudCCMStands(ctx context.Context, was CloudController) flow.Verdict {
	network, err := hetzner.NetworkID(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		return flow.Unknown(err)
	}
	if network != was.NetworkID {
		return flow.Gone("the cluster's network at Hetzner is %d instead of %d", network, was.NetworkID)
	}
	workload, err := b.connect(kubeconfigFile)
	if err != nil {
		return flow.Unknown(err)
	}
	if v := secretStands(ctx, workload, was.Secret, b.ccmSecret(network)); v.Answer() != flow.AnswerHolds {
		return v
	}
	return b.releaseStands(ctx, was.Release)
}
