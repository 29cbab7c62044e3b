package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// writeAccess gives the files in the state folder certificates of the new authorities, and has them trust both: they
// open the cluster at any moment of the rest of the rotation.
func (in inputs) writeAccess(ctx context.Context, say flow.Say, made Made) (Made, error) {
	_, a, err := in.opened(ctx, say, made)
	if err != nil {
		return Made{}, err
	}
	return a.made(), in.writeFiles(a, a.talos.both(), a.kubernetes.both())
}

// writeFiles writes talosconfig and kubeconfig with new client certificates and the authorities that they trust.
func (in inputs) writeFiles(a authorities, talosTrust, kubernetesTrust []byte) error {
	for _, file := range []struct {
		name string
		new  func([]byte) ([]byte, error)
	}{
		{platform.Talosconfig, func(is []byte) ([]byte, error) {
			return talosconfigWith(is, talosTrust, a.talos.newClient)
		}},
		{platform.Kubeconfig, func(is []byte) ([]byte, error) {
			return kubeconfigWith(is, kubernetesTrust, a.kubernetes.newClient)
		}},
	} {
		is, err := in.tools.Files.Read(file.name)
		if err != nil {
			return fmt.Errorf("read %s: %w", file.name, err)
		}
		wanted, err := file.new(is)
		if err != nil {
			return fmt.Errorf("%s: %w", in.tools.Files.Path(file.name), err)
		}
		if err := in.tools.Files.Write(file.name, wanted); err != nil {
			return err
		}
	}
	return in.writeManagement(a, kubernetesTrust)
}

// writeManagement does so with the copy of the management cluster's kubeconfig, where the cluster manages itself and
// that copy opens the cluster itself.
func (in inputs) writeManagement(a authorities, trust []byte) error {
	is, err := in.tools.Files.Read(platform.ManagementKubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !bytes.Contains(bytes.TrimSpace(trustOf(is)), bytes.TrimSpace(a.kubernetes.old)) {
		return nil
	}
	wanted, err := kubeconfigWith(is, trust, a.kubernetes.newClient)
	if err != nil {
		return fmt.Errorf("%s: %w", in.tools.Files.Path(platform.ManagementKubeconfig), err)
	}
	return in.tools.Files.Write(platform.ManagementKubeconfig, wanted)
}

func talosconfigWith(is, trust []byte, certificate pair) ([]byte, error) {
	credentials, err := talos.Parse(is)
	if err != nil {
		return nil, err
	}
	return credentials.With(trust, certificate.Crt, certificate.Key).Bytes()
}

// kubeconfigWith is a kubeconfig whose present context trusts other authorities, and shows another client certificate
// where it has one. A token is not of an authority and stays.
func kubeconfigWith(is, trust []byte, certificate pair) ([]byte, error) {
	config, err := clientcmd.Load(is)
	if err != nil {
		return nil, errors.New("it is not a kubeconfig") // not the error itself, which may quote a key
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.Clusters[context.Cluster] == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("its current context has no cluster or no user")
	}
	config.Clusters[context.Cluster].CertificateAuthorityData = trust
	if user := config.AuthInfos[context.AuthInfo]; len(user.ClientCertificateData) > 0 {
		user.ClientCertificateData, user.ClientKeyData = certificate.Crt, certificate.Key
	}
	return clientcmd.Write(*config)
}

// trustOf are the authorities that a kubeconfig's present context trusts; nil: it has none.
func trustOf(kubeconfig []byte) []byte {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil
	}
	if context := config.Contexts[config.CurrentContext]; context != nil && config.Clusters[context.Cluster] != nil {
		return config.Clusters[context.Cluster].CertificateAuthorityData
	}
	return nil
}

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

// patch changes keys of a Secret, unless somebody else changed it meanwhile.
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

// bootstrapDataKey is the key of the machine configuration in the Secret of a Machine.
const bootstrapDataKey = "value"

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
		is, err := configloader.NewFromBytes(secret.Data[bootstrapDataKey])
		if err != nil { // not the error itself, which may quote a key
			return fmt.Errorf("the key %s of Secret %s/%s is not a machine configuration", bootstrapDataKey,
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
		if err := in.patch(ctx, say, manager, secret, map[string][]byte{bootstrapDataKey: wanted}); err != nil {
			return err
		}
	}
	return nil
}
