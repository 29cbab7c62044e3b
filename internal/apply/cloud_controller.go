package apply

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/charts"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/platform"
)

// CloudControllerSecret writes the Secret from which the hcloud cloud controller manager reads the Hetzner token and
// the ID of the network, and gives its UID.
func CloudControllerSecret(ctx context.Context, tools platform.Tools, say flow.Say, workload *kube.Cluster,
	namespace string, network int64) (uid string, err error) {
	data := map[string][]byte{}
	for key, value := range CloudControllerData(tools, network) {
		data[key] = []byte(value)
	}
	return Secret(ctx, say, workload, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.CCMSecretName},
		Data:       data,
	})
}

// CloudControllerData is what that Secret contains.
func CloudControllerData(tools platform.Tools, network int64) map[string]string {
	return map[string]string{charts.HCloudTokenKey: tools.Token.Reveal(),
		charts.HCloudNetworkKey: strconv.FormatInt(network, 10)}
}
