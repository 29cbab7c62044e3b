package restore

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Seed is the Secret that was there before anything asked for a new one.
type Seed struct {
	Secret steps.TokenSecret `json:"secret"`
}

// seedSecrets writes it, and besides it what of the backup's Secrets and ConfigMaps no controller creates again. A
// bundle that is there with other contents belongs to another cluster of the name: servers may have been made of it,
// and it is not overwritten.
func (r inputs) seedSecrets(ctx context.Context, say flow.Say, m steps.Management) (Seed, error) {
	mgmt, err := connect.Cluster(r.tools, m.Kubeconfig)
	if err != nil {
		return Seed{}, err
	}
	name := r.cfg.ClusterName + backup.TalosSecretSuffix
	was := r.source.Secret(name)
	data, err := backup.SecretDataOf(was)
	if err != nil {
		return Seed{}, err
	}
	if err := r.refuseOther(ctx, mgmt, name, data); err != nil {
		return Seed{}, err
	}
	if err := apply.Namespace(ctx, r.cfg, say, mgmt); err != nil {
		return Seed{}, err
	}
	say("writing Secret %s", name)
	// By its label the providers find it; the other makes it go along when the cluster is moved into itself, as it has no
	// owner.
	secret := &corev1.Secret{Type: corev1.SecretType(capi.Text(was, "type")), Data: data}
	secret.Namespace, secret.Name = r.cfg.Namespace, name
	secret.Labels = map[string]string{capi.ClusterNameLabel: r.cfg.ClusterName, capi.MoveLabel: ""}
	uid, err := apply.Secret(ctx, say, mgmt, secret)
	if err != nil {
		return Seed{}, err
	}
	for _, o := range r.source.KeptSecrets() {
		say("writing %s", kube.Describe(o))
		if err := apply.Object(ctx, say, mgmt, o); err != nil {
			return Seed{}, err
		}
	}
	return Seed{Secret: steps.TokenSecret{Namespace: r.cfg.Namespace, Name: name, UID: uid}}, nil
}

// refuseOther compares a Secret that is there with the backup's. No value is part of what it says.
func (r inputs) refuseOther(ctx context.Context, mgmt *kube.Cluster, name string, want map[string][]byte) error {
	is := &corev1.Secret{}
	err := mgmt.Get(ctx, client.ObjectKey{Namespace: r.cfg.Namespace, Name: name}, is)
	if kube.Absent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Secret %s: %w", name, err)
	}
	for key, value := range want {
		if string(is.Data[key]) != string(value) {
			return fmt.Errorf("the management cluster has a Secret %s with another %s than the backup's: a cluster of this "+
				"name was begun there with other keys, and the restored etcd could not be read with them. Destroy that "+
				"cluster first", name, key)
		}
	}
	return nil
}

func (r inputs) verifySecrets(ctx context.Context, was Seed) flow.Verdict {
	mgmt, err := connect.Cluster(r.tools, platform.ManagementKubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	is := &corev1.Secret{}
	if err := mgmt.Get(ctx, client.ObjectKey{Namespace: was.Secret.Namespace, Name: was.Secret.Name}, is); err != nil {
		return kube.Verdict(fmt.Errorf("get Secret %s: %w", was.Secret.Name, err))
	}
	if string(is.UID) != was.Secret.UID {
		return flow.Gone("Secret %s is another one than the recorded", was.Secret.Name)
	}
	return flow.Holds()
}
