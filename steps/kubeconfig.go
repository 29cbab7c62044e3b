package steps

import (
	"bytes"
	"context"
	"errors"
	"io/fs"

	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
)

// Kubeconfig is the file that opens the workload cluster.
type Kubeconfig struct {
	File string `json:"file"` // in the state folder
	// Cluster is the UID of the Cluster object: the kubeconfig of a cluster made anew is another one.
	Cluster string `json:"cluster"`
}

// fetchKubeconfig copies the kubeconfig that the control plane provider keeps, as soon as there is one.
func (b *bootstrapper) fetchKubeconfig(ctx context.Context, say flow.Say, m Management, c Cluster) (Kubeconfig, error) {
	mgmt, err := b.connect(m.Kubeconfig)
	if err != nil {
		return Kubeconfig{}, err
	}
	config, err := b.waitSecret(ctx, say, mgmt, c.Name+"-kubeconfig", "value")
	if err != nil {
		return Kubeconfig{}, err
	}
	if err := b.tools.Files.Write(kubeconfigFile, config); err != nil {
		return Kubeconfig{}, err
	}
	return Kubeconfig{File: kubeconfigFile, Cluster: c.UID}, nil
}

// waitSecret waits until one of the cluster's Secrets has a key.
func (b *bootstrapper) waitSecret(ctx context.Context, say flow.Say, mgmt *kube.Cluster, name, key string) (value []byte, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching, kube.Selection{List: &corev1.SecretList{}, Options: []client.ListOption{
		client.InNamespace(Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)},
	}})
	err = wait{what: "Secret " + name, within: b.cfg.ControlPlaneTimeout.D(), changes: changes, because: b.because(mgmt, b.watched())}.until(ctx, say, func(ctx context.Context) (string, error) {
		value, err = secretValue(ctx, mgmt, name, key)
		if kube.Absent(err) {
			return "it does not exist yet", nil
		}
		return "", err
	})
	return value, err
}

// kubeconfigStands compares the file with the Secret: the provider makes a new certificate before the old one ends.
func (b *bootstrapper) kubeconfigStands(ctx context.Context, _ Kubeconfig) flow.Verdict {
	mgmt, err := b.connect(managementFile)
	if err != nil {
		return flow.Unknown(err)
	}
	return b.kubeconfigHolds(ctx, mgmt)
}

func (b *bootstrapper) kubeconfigHolds(ctx context.Context, mgmt *kube.Cluster) flow.Verdict {
	file, err := b.tools.Files.Read(kubeconfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return flow.Gone("the file %s is not in the state folder", kubeconfigFile)
	}
	if err != nil {
		return flow.Unknown(err)
	}
	live, err := secretValue(ctx, mgmt, b.cfg.ClusterName+"-kubeconfig", "value")
	if err != nil {
		return unless(err)
	}
	if !bytes.Equal(file, live) {
		return flow.Gone("there is a newer kubeconfig")
	}
	return flow.Holds()
}
