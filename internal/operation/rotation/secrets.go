package rotation

import (
	"context"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// Keys of the Secrets of a cluster, and what ends the Secrets' names, as Cluster API and its providers have them.
const (
	authoritySuffix   = "-ca"
	kubeconfigSuffix  = "-kubeconfig"
	talosconfigSuffix = "-talosconfig"
	kubeconfigKey     = "value"
	talosconfigKey    = "talosconfig"
)

// replaceSecrets has Cluster API use the new authorities: CABPT takes those of new servers from one Secret, CACPPT
// signs kubeconfigs with another. The two that they make from these are written here, too: in a cluster that manages
// itself the controllers do not trust its API again before they are restarted.
func (in inputs) replaceSecrets(ctx context.Context, say flow.Say, made Made) (Made, error) {
	c, a, err := in.opened(ctx, say, made)
	if err != nil {
		return Made{}, err
	}
	return a.made(), in.ensureSecrets(ctx, say, c.manager, a)
}

// secretsWithin is how long the Secrets are tried to be changed: their controllers change them, too.
const secretsWithin = time.Minute

// ensureSecrets changes those that do not have the new authorities.
func (in inputs) ensureSecrets(ctx context.Context, say flow.Say, manager *kube.Cluster, a authorities) error {
	w := wait.Wait{What: "the Secrets of Cluster API", Within: secretsWithin}
	return w.Until(ctx, say, func(ctx context.Context) (string, error) {
		return "", in.changeSecrets(ctx, say, manager, a)
	})
}

func (in inputs) changeSecrets(ctx context.Context, say flow.Say, manager *kube.Cluster, a authorities) error {
	b, err := in.readBundle(ctx, manager)
	if err != nil {
		return err
	}
	if is, kubernetes, err := b.authorities(); err != nil {
		return err
	} else if !same(is.Crt, a.talos.new.Crt) || !same(kubernetes.Crt, a.kubernetes.new.Crt) {
		text, err := b.with(a.talos.new, a.kubernetes.new)
		if err != nil {
			return err
		}
		if err := in.patch(ctx, say, manager, b.secret, map[string][]byte{bundleKey: text}); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		suffix string
		change func(map[string][]byte) (map[string][]byte, error) // nil: it is as it is to be
	}{
		{authoritySuffix, func(is map[string][]byte) (map[string][]byte, error) {
			if same(is[corev1.TLSCertKey], a.kubernetes.new.Crt) {
				return nil, nil
			}
			return map[string][]byte{corev1.TLSCertKey: a.kubernetes.new.Crt,
				corev1.TLSPrivateKeyKey: a.kubernetes.new.Key}, nil
		}},
		{kubeconfigSuffix, func(is map[string][]byte) (map[string][]byte, error) {
			if same(trustOf(is[kubeconfigKey]), a.kubernetes.new.Crt) {
				return nil, nil
			}
			text, err := kubeconfigWith(is[kubeconfigKey], a.kubernetes.new.Crt, a.kubernetes.newClient)
			return map[string][]byte{kubeconfigKey: text}, err
		}},
		{talosconfigSuffix, func(is map[string][]byte) (map[string][]byte, error) {
			if credentials, err := talos.Parse(is[talosconfigKey]); err == nil {
				if of, err := credentials.Fingerprint(); err == nil && of == fingerprint(a.talos.new.Crt) {
					return nil, nil
				}
			}
			text, err := talosconfigWith(is[talosconfigKey], a.talos.new.Crt, a.talos.newClient)
			return map[string][]byte{talosconfigKey: text}, err
		}},
	} {
		secret := &corev1.Secret{}
		name := in.cfg.ClusterName + one.suffix
		if err := manager.Get(ctx, client.ObjectKey{Namespace: in.cfg.Namespace, Name: name}, secret); err != nil {
			return fmt.Errorf("read Secret %s/%s: %w", in.cfg.Namespace, name, err)
		}
		wanted, err := one.change(secret.Data)
		if err != nil {
			return fmt.Errorf("give Secret %s/%s certificates of the new authority: %w", in.cfg.Namespace, name, err)
		}
		if wanted == nil {
			continue
		}
		if err := in.patch(ctx, say, manager, secret, wanted); err != nil {
			return err
		}
	}
	return in.ensureBootstrapData(ctx, say, manager, a)
}

// patch changes keys of a Secret, unless it was changed since it was read.
func (in inputs) patch(ctx context.Context, say flow.Say, manager *kube.Cluster, secret *corev1.Secret,
	data map[string][]byte) error {
	say("giving Secret %s/%s the new authority", secret.Namespace, secret.Name)
	changed := secret.DeepCopy()
	for key, value := range data {
		changed.Data[key] = value
	}
	with := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := manager.Patch(ctx, changed, with); err != nil {
		return fmt.Errorf("give Secret %s/%s the new authority: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// ensureBootstrapData gives the machine configurations that servers were made with the new authorities: CAPH makes a
// server that has vanished again from them, and CABPT writes them once. They have the keys of the authorities, too.
func (in inputs) ensureBootstrapData(ctx context.Context, say flow.Say, manager *kube.Cluster, a authorities) error {
	machines, err := capi.List(ctx, manager, in.cfg.Namespace, capi.MachineKind, in.cfg.ClusterName)
	if err != nil {
		return err
	}
	for i := range machines {
		name := capi.Text(&machines[i], "spec", "bootstrap", "dataSecretName")
		if name == "" {
			continue
		}
		secret := &corev1.Secret{}
		err := manager.Get(ctx, client.ObjectKey{Namespace: in.cfg.Namespace, Name: name}, secret)
		if kube.Absent(err) {
			continue // it is deleted with its Machine
		}
		if err != nil {
			return fmt.Errorf("read Secret %s/%s: %w", in.cfg.Namespace, name, err)
		}
		is, err := configloader.NewFromBytes(secret.Data[capi.BootstrapDataKey])
		if err != nil { // not the error itself, which may quote a key
			return fmt.Errorf("the key %s of Secret %s/%s is not a machine configuration", capi.BootstrapDataKey,
				in.cfg.Namespace, name)
		}
		_, controlPlane := machines[i].GetLabels()[capi.ControlPlaneLabel]
		wanted, err := pass{change: replaceOld}.changed(a, is, controlPlane)
		if err != nil {
			return fmt.Errorf("the machine configuration in Secret %s/%s: %w", in.cfg.Namespace, name, err)
		}
		if wanted == nil {
			continue
		}
		if err := in.patch(ctx, say, manager, secret, map[string][]byte{capi.BootstrapDataKey: wanted}); err != nil {
			return err
		}
	}
	return nil
}
