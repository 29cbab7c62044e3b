package rotation

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// bundleKey is the key in CABPT's Secret under which everything is that the servers of a cluster have in common (CABPT
// v0.6, controllers/secrets.go, writeSecretsBundleSecret): in YAML, with certs.os and certs.k8s among it.
const bundleKey = "bundle"

// Fields of a bundle that have the authorities of the two APIs.
const (
	bundleTalos      = "os"
	bundleKubernetes = "k8s"
)

// bundle is the Secret from which CABPT takes the authorities of a new server.
type bundle struct {
	secret *corev1.Secret
	fields map[string]any
}

func (in inputs) readBundle(ctx context.Context, manager *kube.Cluster) (b bundle, err error) {
	name := in.cfg.ClusterName + backup.TalosSecretSuffix
	b.secret = &corev1.Secret{}
	if err := manager.Get(ctx, client.ObjectKey{Namespace: in.cfg.Namespace, Name: name}, b.secret); err != nil {
		return b, fmt.Errorf("read the authorities of the cluster in Secret %s/%s: %w", in.cfg.Namespace, name, err)
	}
	raw := b.secret.Data[bundleKey]
	if len(raw) == 0 {
		return b, fmt.Errorf("the Secret %s/%s has no key %s: CABPT before v0.6 wrote it in another form, which is "+
			"not changed here", in.cfg.Namespace, name, bundleKey)
	}
	if err := yaml.Unmarshal(raw, &b.fields); err != nil { // not the error itself, which may quote a key
		return b, b.wrong(errors.New("it is not YAML"))
	}
	return b, nil
}

func (b bundle) wrong(why error) error {
	return fmt.Errorf("the key %s of Secret %s/%s is not what CABPT writes there: %w", bundleKey, b.secret.Namespace,
		b.secret.Name, why)
}

// authorities are those that it has.
func (b bundle) authorities() (talos, kubernetes pair, err error) {
	for field, to := range map[string]*pair{bundleTalos: &talos, bundleKubernetes: &kubernetes} {
		for key, value := range map[string]*[]byte{"crt": &to.Crt, "key": &to.Key} {
			text, _, _ := unstructured.NestedString(b.fields, "certs", field, key)
			if *value, err = base64.StdEncoding.DecodeString(text); err != nil || len(*value) == 0 {
				return talos, kubernetes, b.wrong(fmt.Errorf("certs.%s.%s is not there, or not in base64", field, key))
			}
		}
	}
	return talos, kubernetes, nil
}

// with is the bundle with other authorities, as text.
func (b bundle) with(talos, kubernetes pair) ([]byte, error) {
	for field, of := range map[string]pair{bundleTalos: talos, bundleKubernetes: kubernetes} {
		for key, value := range map[string][]byte{"crt": of.Crt, "key": of.Key} {
			text := base64.StdEncoding.EncodeToString(value)
			if err := unstructured.SetNestedField(b.fields, text, "certs", field, key); err != nil {
				return nil, b.wrong(fmt.Errorf("certs.%s has another form", field))
			}
		}
	}
	return yaml.Marshal(b.fields)
}
