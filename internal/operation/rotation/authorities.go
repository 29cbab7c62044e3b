package rotation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	xcrypto "github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
)

// secretSuffix ends the name of the Secret with the new authorities, which exists as long as the rotation.
const secretSuffix = "-new-authorities"

// clientLife is how long the client certificates are good for that a rotation makes, as those of the providers are.
const clientLife = 365 * 24 * time.Hour

// Users of the client certificates, as Cluster API and Talos name them.
const (
	kubernetesUser  = "kubernetes-admin"
	kubernetesGroup = "system:masters"
)

// pair is a certificate and its key, in PEM.
type pair = xcrypto.PEMEncodedCertificateAndKey

// authority is one of the two that are rotated.
type authority struct {
	new       pair
	old       []byte // the certificate of the old one, in PEM
	oldClient pair   // a client certificate of the old one, which is to be refused in the end
	newClient pair   // a client certificate of the new one, made for this run
}

// both is what trusts the new and the old one, the new one first.
func (a authority) both() []byte {
	return slices.Concat(bytes.TrimSpace(a.new.Crt), []byte("\n"), bytes.TrimSpace(a.old), []byte("\n"))
}

// authorities are the old and the new ones.
type authorities struct{ talos, kubernetes authority }

// Made identifies the new authorities: the SHA-256 of their certificates.
type Made struct {
	Talos      string `json:"talos"`
	Kubernetes string `json:"kubernetes"`
	// Unready are the workloads that were not ready before the first server was changed: nothing waits for them.
	Unready []kube.Workload `json:"unready,omitempty"`
}

func (a authorities) made() Made {
	return Made{Talos: fingerprint(a.talos.new.Crt), Kubernetes: fingerprint(a.kubernetes.new.Crt)}
}

// fingerprint is the SHA-256 of a certificate in PEM.
func fingerprint(cert []byte) string {
	block, _ := pem.Decode(cert)
	if block == nil {
		return ""
	}
	sum := sha256.Sum256(block.Bytes)
	return hex.EncodeToString(sum[:])
}

// makeAuthorities finds the Secret with the new authorities, or makes them once the cluster is whole.
func (in inputs) makeAuthorities(ctx context.Context, say flow.Say) (Made, error) {
	c, err := in.open(ctx, say)
	if err != nil {
		return Made{}, err
	}
	a, err := in.readAuthorities(ctx, c.manager)
	switch {
	case err == nil:
		say("continuing with the authorities in Secret %s/%s", in.cfg.Namespace, in.secretName())
	case !kube.Absent(err):
		return Made{}, err
	default:
		if a, err = in.keepNew(ctx, say, c); err != nil {
			return Made{}, err
		}
	}
	made := a.made()
	err = wait.Retry(ctx, say, "what uses the Kubernetes API", func() error {
		found, err := findClients(ctx, c.workload)
		made.Unready = found.unready
		return err
	})
	return made, err
}

// keepNew makes the authorities once the cluster is whole, and keeps them in their Secret.
func (in inputs) keepNew(ctx context.Context, say flow.Say, c clusters) (a authorities, err error) {
	if err := in.awaitWhole(ctx, say, c); err != nil {
		return a, err
	}
	if a, err = in.newAuthorities(ctx, c.manager); err != nil {
		return a, err
	}
	if err := in.createSecret(ctx, c.manager, a); err != nil {
		return a, err
	}
	return in.readAuthorities(ctx, c.manager) // another state folder may have been faster
}

func (in inputs) secretName() string { return in.cfg.ClusterName + secretSuffix }

// newAuthorities generates them, and client certificates of the old ones.
func (in inputs) newAuthorities(ctx context.Context, manager *kube.Cluster) (a authorities, err error) {
	bundle, err := in.readBundle(ctx, manager)
	if err != nil {
		return a, err
	}
	talosOld, kubernetesOld, err := bundle.authorities()
	if err != nil {
		return a, err
	}
	now := time.Now()
	for _, one := range []struct {
		to     *authority
		old    pair
		make   func() (*xcrypto.CertificateAuthority, error)
		client func(pair) (pair, error)
	}{
		{&a.talos, talosOld, func() (*xcrypto.CertificateAuthority, error) { return secrets.NewTalosCA(now) },
			talosClient},
		{&a.kubernetes, kubernetesOld,
			func() (*xcrypto.CertificateAuthority, error) { return secrets.NewKubernetesCA(now, nil) },
			kubernetesClient},
	} {
		made, err := one.make()
		if err != nil {
			return a, fmt.Errorf("make a certificate authority: %w", err)
		}
		one.to.new = pair{Crt: made.CrtPEM, Key: made.KeyPEM}
		one.to.old = one.old.Crt
		if one.to.oldClient, err = one.client(one.old); err != nil {
			return a, err
		}
	}
	return a, nil
}

// talosClient is a client certificate of an administrator of the Talos API.
func talosClient(ca pair) (pair, error) {
	p, err := secrets.NewAdminCertificateAndKey(time.Now(), &ca, role.MakeSet(role.Admin), clientLife)
	if err != nil {
		return pair{}, fmt.Errorf("issue a client certificate of the Talos API: %w", err)
	}
	return *p, nil
}

// kubernetesClient is a client certificate of an administrator of the Kubernetes API.
func kubernetesClient(ca pair) (pair, error) {
	issuing, err := xcrypto.NewCertificateAuthorityFromCertificateAndKey(&ca)
	if err == nil {
		var p *xcrypto.KeyPair
		p, err = xcrypto.NewKeyPair(issuing, xcrypto.CommonName(kubernetesUser), xcrypto.Organization(kubernetesGroup),
			xcrypto.NotBefore(time.Now()), xcrypto.NotAfter(time.Now().Add(clientLife)),
			xcrypto.KeyUsage(x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment),
			xcrypto.ExtKeyUsage([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}))
		if err == nil {
			return *xcrypto.NewCertificateAndKeyFromKeyPair(p), nil
		}
	}
	return pair{}, fmt.Errorf("issue a client certificate of the Kubernetes API: %w", err)
}

// field is a field of the Secret with the new authorities.
type field struct {
	key   string
	value *[]byte
}

func (a *authorities) fields() (all []field) {
	for name, one := range map[string]*authority{"talos": &a.talos, "kubernetes": &a.kubernetes} {
		all = append(all, field{name + ".crt", &one.new.Crt}, field{name + ".key", &one.new.Key},
			field{"old-" + name + ".crt", &one.old},
			field{"old-" + name + "-client.crt", &one.oldClient.Crt},
			field{"old-" + name + "-client.key", &one.oldClient.Key})
	}
	return all
}

// readAuthorities reads the Secret with the new authorities.
func (in inputs) readAuthorities(ctx context.Context, manager *kube.Cluster) (a authorities, err error) {
	secret := &corev1.Secret{}
	if err := manager.Get(ctx, client.ObjectKey{Namespace: in.cfg.Namespace, Name: in.secretName()},
		secret); err != nil {
		return a, fmt.Errorf("read the new authorities in Secret %s/%s: %w", in.cfg.Namespace, in.secretName(), err)
	}
	for _, f := range a.fields() {
		if *f.value = secret.Data[f.key]; len(*f.value) == 0 {
			return a, fmt.Errorf("Secret %s/%s has no key %s: it was not made by a rotation, or was changed since",
				in.cfg.Namespace, in.secretName(), f.key)
		}
	}
	if a.talos.newClient, err = talosClient(a.talos.new); err != nil {
		return a, err
	}
	a.kubernetes.newClient, err = kubernetesClient(a.kubernetes.new)
	return a, err
}

// createSecret keeps the new authorities beside those that CABPT has, until the rotation has ended: in the cluster,
// where the loss of the state folder does not lose them.
func (in inputs) createSecret(ctx context.Context, manager *kube.Cluster, a authorities) error {
	cluster, err := capi.Get(ctx, manager, in.cfg.Namespace, capi.ClusterKind, in.cfg.ClusterName)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in.cfg.Namespace, Name: in.secretName(),
		Labels:          map[string]string{capi.ClusterNameLabel: in.cfg.ClusterName},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cluster, capi.ClusterKind)}},
		Data: map[string][]byte{}}
	for _, f := range a.fields() {
		secret.Data[f.key] = *f.value
	}
	if err := manager.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keep the new authorities in Secret %s/%s: %w", in.cfg.Namespace, in.secretName(), err)
	}
	return nil
}

// removeSecret ends the rotation.
func (in inputs) removeSecret(ctx context.Context, manager *kube.Cluster) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: in.cfg.Namespace, Name: in.secretName()}}
	if err := manager.Delete(ctx, secret); err != nil && !kube.Absent(err) {
		return fmt.Errorf("delete Secret %s/%s with the keys of the authorities: %w", in.cfg.Namespace,
			in.secretName(), err)
	}
	return nil
}
