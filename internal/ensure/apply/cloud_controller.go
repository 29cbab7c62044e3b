package apply

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// CloudControllerSecret writes the Secret from which the hcloud cloud controller manager reads the Hetzner token and
// the ID of the network, and gives its UID. Where it replaces other content it says so in an annotation, for
// RestartReaders; a token that may only read is not written.
func CloudControllerSecret(ctx context.Context, tools platform.Tools, say flow.Say, workload *kube.Cluster,
	namespace string, network int64) (uid string, err error) {
	data := map[string][]byte{}
	for key, value := range CloudControllerData(tools, network) {
		data[key] = []byte(value)
	}
	is := &corev1.Secret{}
	err = workload.Get(ctx, client.ObjectKey{Namespace: namespace, Name: config.CCMSecretName}, is)
	if err != nil && !kube.Absent(err) {
		return "", fmt.Errorf("get Secret %s/%s: %w", namespace, config.CCMSecretName, err)
	}
	annotations := map[string]string{}
	if at := is.Annotations[capi.ReplacedAnnotation]; at != "" {
		annotations[capi.ReplacedAnnotation] = at
	}
	for key, value := range data {
		if err == nil && string(is.Data[key]) != string(value) {
			annotations[capi.ReplacedAnnotation] = time.Now().UTC().Format(time.RFC3339Nano)
		}
	}
	if err != nil || string(is.Data[render.HCloudTokenKey]) != tools.Token.Reveal() {
		if err := CheckToken(ctx, tools, namespace, config.CCMSecretName); err != nil {
			return "", err
		}
	}
	return Secret(ctx, say, workload, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: config.CCMSecretName, Annotations: annotations},
		Data:       data,
	})
}

// CheckToken refuses to put a token that may not write into a Secret: what works with it would stop.
func CheckToken(ctx context.Context, tools platform.Tools, namespace, name string) error {
	if err := hetzner.CheckWrite(ctx, tools.Hetzner); err != nil {
		return fmt.Errorf("the Hetzner token is not written into Secret %s/%s: %w; %s", namespace, name, err,
			hetzner.AnotherToken)
	}
	return nil
}

// CloudControllerData is what that Secret contains.
func CloudControllerData(tools platform.Tools, network int64) map[string]string {
	return map[string]string{render.HCloudTokenKey: tools.Token.Reveal(),
		render.HCloudNetworkKey: strconv.FormatInt(network, 10)}
}
