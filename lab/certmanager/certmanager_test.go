package certmanager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

func TestMain(m *testing.M) { standintest.Main(m, Run) }

// harness is a real Kubernetes API with cert-manager's kinds and the stand-in at work.
type harness struct {
	client.Client
}

func must(t *testing.T, err error) {
	t.Helper()
	standintest.Must(t, err)
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	control, config := planetest.Start(t, nil)
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, addToScheme(scheme))
	k, err := client.New(config, client.Options{Scheme: scheme})
	must(t, err)
	w := &harness{Client: k}

	data, err := os.ReadFile(filepath.Join("..", "repository", "certmanager", "cert-manager.yaml"))
	must(t, err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(&object.Object); errors.Is(err, io.EOF) {
			break
		} else {
			must(t, err)
		}
		if object.GetKind() == "CustomResourceDefinition" {
			must(t, w.Create(t.Context(), object))
		}
	}
	standintest.Eventually(t, "the kinds to be served", func(ctx context.Context) error {
		return errors.Join(w.List(ctx, &CertificateList{}), w.List(ctx, &IssuerList{}), w.List(ctx, &ClusterIssuerList{}))
	})
	standintest.Allow(t, k, "cert-manager", Rules())
	identity, err := control.Kubeconfig("cert-manager")
	must(t, err)
	health := "127.0.0.1:" + standintest.FreePort(t)
	standintest.Start(t, standintest.Program{Args: []string{
		"--v=2", "--cluster-resource-namespace=cert-manager", "--leader-election-namespace=kube-system",
		"--max-concurrent-challenges=60",
		"--acme-http01-solver-image=example/solver", "--enable-certificate-owner-ref",
		"--kubeconfig=" + standintest.WriteFile(t, "kubeconfig", identity), "--healthz-listen-address=" + health,
		"--metrics-listen-address=0",
	}})
	standintest.Healthy(t, http.DefaultClient, "http://"+health+"/livez")
	return w
}

func TestStandIn(t *testing.T) {
	w := newHarness(t)
	t.Run("clusterctl's test resources", w.testSelfSigned)
	t.Run("authority", w.testAuthority)
	t.Run("renewal", w.testRenewal)
	t.Run("not simulated", w.testNotSimulated)
	t.Run("injection", w.testInjection)
}

func (w *harness) apply(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	must(t, utilyaml.Unmarshal([]byte(text), &object.Object))
	must(t, w.Create(t.Context(), object))
	return object
}

func (w *harness) namespace(t *testing.T, name string) {
	t.Helper()
	must(t, w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// issued waits until a Certificate is ready at a revision, and returns it with its Secret and what is in that.
func (w *harness) issued(
	t *testing.T, namespace, name string, revision int,
) (*Certificate, *corev1.Secret, *x509.Certificate) {
	t.Helper()
	c := &Certificate{}
	standintest.Eventually(t, fmt.Sprintf("revision %d of certificate %s/%s", revision, namespace, name),
		func(ctx context.Context) error {
			*c = Certificate{}
			if err := w.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, c); err != nil {
				return err
			}
			if !isReady(c.Status.Conditions) || c.Status.Revision == nil || *c.Status.Revision < revision {
				return fmt.Errorf("status is %+v", c.Status)
			}
			return nil
		})
	secret := &corev1.Secret{}
	must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: c.Spec.SecretName}, secret))
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	must(t, err)
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	must(t, err)
	return c, secret, leaf
}

// verify checks that clients who trust ca accept a server certificate for a name.
func verify(t *testing.T, leaf *x509.Certificate, ca []byte, name string) {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		t.Fatal("ca.crt has no certificate")
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
		t.Errorf("verifying for %s: %v", name, err)
	}
}

// testSelfSigned applies what clusterctl applies to find out whether cert-manager works.
func (w *harness) testSelfSigned(t *testing.T) {
	w.namespace(t, "cert-manager-test")
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: selfsigned-cert, namespace: cert-manager-test}
spec:
  dnsNames: [example.com]
  secretName: selfsigned-cert-tls
  issuerRef: {name: test-selfsigned}
`)
	// The Issuer comes after its Certificate: that waits for it.
	standintest.Eventually(t, "the missing issuer to be told", func(ctx context.Context) error {
		c := &Certificate{}
		if err := w.Get(ctx, client.ObjectKey{Namespace: "cert-manager-test", Name: "selfsigned-cert"}, c); err != nil {
			return err
		}
		if len(c.Status.Conditions) != 1 || c.Status.Conditions[0].Status != corev1.ConditionFalse {
			return fmt.Errorf("conditions are %+v", c.Status.Conditions)
		}
		return nil
	})
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: test-selfsigned, namespace: cert-manager-test}
spec: {selfSigned: {}}
`)
	c, secret, leaf := w.issued(t, "cert-manager-test", "selfsigned-cert", 1)
	verify(t, leaf, secret.Data["ca.crt"], "example.com")
	if secret.Type != corev1.SecretTypeTLS || secret.Annotations["cert-manager.io/certificate-name"] != c.Name ||
		secret.Annotations["cert-manager.io/issuer-name"] != "test-selfsigned" || !metav1.IsControlledBy(secret, c) {
		t.Errorf("secret: type %s, metadata %+v", secret.Type, secret.ObjectMeta)
	}
	if life := leaf.NotAfter.Sub(leaf.NotBefore); life != defaultDuration || !c.Status.NotAfter.Time.Equal(leaf.NotAfter) {
		t.Errorf("life %s, status %+v", life, c.Status)
	}

	// Another name: another certificate with another key. A lost Secret: another one.
	before := c.DeepCopy()
	c.Spec.DNSNames = []string{"example.com", "svc.ns.svc"}
	must(t, w.Patch(t.Context(), c, client.MergeFrom(before)))
	_, again, leaf := w.issued(t, "cert-manager-test", "selfsigned-cert", 2)
	verify(t, leaf, again.Data["ca.crt"], "svc.ns.svc")
	if bytes.Equal(secret.Data["tls.key"], again.Data["tls.key"]) {
		t.Error("the key is the old one")
	}
	must(t, w.Delete(t.Context(), again))
	w.issued(t, "cert-manager-test", "selfsigned-cert", 3)
}

func (w *harness) testAuthority(t *testing.T) {
	w.namespace(t, "cert-manager") // the namespace of ClusterIssuers' Secrets
	w.namespace(t, "user")
	for _, text := range []string{`
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: root}
spec: {selfSigned: {}}
`, `
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: authority}
spec: {ca: {secretName: authority}}
`, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority, namespace: cert-manager}
spec:
  isCA: true
  commonName: authority
  secretName: authority
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: root, kind: ClusterIssuer}
`, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: leaf, namespace: user}
spec:
  commonName: leaf
  dnsNames: [leaf.user.svc]
  ipAddresses: [127.0.0.1]
  usages: [server auth, client auth, digital signature]
  subject: {organizations: [somebody]}
  secretName: leaf
  secretTemplate: {labels: {app: leaf}}
  privateKey: {rotationPolicy: Never}
  issuerRef: {name: authority, kind: ClusterIssuer}
`} {
		w.apply(t, text)
	}
	_, authority, _ := w.issued(t, "cert-manager", "authority", 1)
	c, secret, leaf := w.issued(t, "user", "leaf", 1)
	if !bytes.Equal(secret.Data["ca.crt"], authority.Data["tls.crt"]) {
		t.Error("ca.crt is not the authority's certificate")
	}
	verify(t, leaf, secret.Data["ca.crt"], "leaf.user.svc")
	verify(t, leaf, secret.Data["ca.crt"], "127.0.0.1")
	if !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) ||
		leaf.KeyUsage != x509.KeyUsageDigitalSignature || leaf.Subject.Organization[0] != "somebody" ||
		secret.Labels["app"] != "leaf" {
		t.Errorf("leaf: usage %v, %v, subject %s, labels %v", leaf.KeyUsage, leaf.ExtKeyUsage, leaf.Subject, secret.Labels)
	}
	before := c.DeepCopy()
	c.Spec.IssuerRef = IssuerRef{Name: "root", Kind: "ClusterIssuer"}
	must(t, w.Patch(t.Context(), c, client.MergeFrom(before)))
	_, again, _ := w.issued(t, "user", "leaf", 2)
	if !bytes.Equal(again.Data["ca.crt"], again.Data["tls.crt"]) ||
		!bytes.Equal(again.Data["tls.key"], secret.Data["tls.key"]) {
		t.Error("after a change of issuer: want a certificate that signs itself, with the same key (rotationPolicy Never)")
	}
}

func (w *harness) testRenewal(t *testing.T) {
	w.namespace(t, "renewal")
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self, namespace: renewal}
spec: {selfSigned: {}}
`)
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: short, namespace: renewal}
spec:
  dnsNames: [short]
  duration: 1h
  renewBefore: 59m57s
  secretName: short
  privateKey: {algorithm: Ed25519}
  issuerRef: {name: self}
`)
	_, _, first := w.issued(t, "renewal", "short", 1)
	_, _, second := w.issued(t, "renewal", "short", 2)
	if age := second.NotBefore.Sub(first.NotBefore); age < 2*time.Second {
		t.Errorf("renewed after %s, before its time", age)
	}
}

func (w *harness) testNotSimulated(t *testing.T) {
	w.namespace(t, "other")
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: acme, namespace: other}
spec: {acme: {server: "https://example.com"}}
`)
	standintest.Eventually(t, "the issuer to say that it is not simulated", func(ctx context.Context) error {
		issuer := &Issuer{}
		if err := w.Get(ctx, client.ObjectKey{Namespace: "other", Name: "acme"}, issuer); err != nil {
			return err
		}
		if len(issuer.Status.Conditions) != 1 || issuer.Status.Conditions[0].Reason != "NotSimulated" {
			return fmt.Errorf("conditions are %+v", issuer.Status.Conditions)
		}
		return nil
	})
}

func (w *harness) testInjection(t *testing.T) {
	w.namespace(t, "inject")
	objects := map[*unstructured.Unstructured][]string{
		w.apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: injected, annotations: {cert-manager.io/inject-ca-from: inject/serving}}
webhooks:
- {name: a.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore, clientConfig: {service: {name: s, namespace: inject}}}
- {name: b.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore, clientConfig: {service: {name: s, namespace: inject}}}
`): {"webhooks"},
		w.apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: injected, annotations: {cert-manager.io/inject-ca-from: inject/serving}}
webhooks:
- {name: c.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: Ignore, clientConfig: {service: {name: s, namespace: inject}}}
`): {"webhooks"},
		w.apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: injecteds.example.com, annotations: {cert-manager.io/inject-ca-from: inject/serving}}
spec:
  group: example.com
  scope: Cluster
  names: {kind: Injected, plural: injecteds, singular: injected}
  conversion:
    strategy: Webhook
    webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: s, namespace: inject, path: /convert}}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`): {"spec", "conversion", "webhook", "clientConfig", "caBundle"},
		w.apply(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.injected.example.com, annotations: {cert-manager.io/inject-ca-from: inject/serving}}
spec: {group: injected.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 1, service: {name: s, namespace: inject}}
`): {"spec", "caBundle"},
	}
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: self, namespace: inject}
spec: {selfSigned: {}}
`)
	w.apply(t, `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: serving, namespace: inject}
spec: {dnsNames: [s.inject.svc], secretName: serving, issuerRef: {name: self}}
`)
	_, secret, _ := w.issued(t, "inject", "serving", 1)
	check := func(secret *corev1.Secret) {
		for object, path := range objects {
			standintest.Eventually(t, "the authority in "+object.GetKind(), func(ctx context.Context) error {
				if err := w.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
					return err
				}
				want := base64.StdEncoding.EncodeToString(secret.Data["ca.crt"])
				for _, got := range bundles(object, path) {
					if got != want {
						return fmt.Errorf("caBundle is %.40q…", got)
					}
				}
				return nil
			})
		}
	}
	check(secret)
	// A new certificate, by way of a lost Secret, is injected again.
	must(t, w.Delete(t.Context(), secret))
	_, secret, _ = w.issued(t, "inject", "serving", 2)
	check(secret)
}

// bundles returns the authorities in an object, which lie in each webhook or at path.
func bundles(object *unstructured.Unstructured, path []string) (found []string) {
	if path[0] != "webhooks" {
		bundle, _, _ := unstructured.NestedString(object.Object, path...)
		return []string{bundle}
	}
	webhooks, _, _ := unstructured.NestedSlice(object.Object, "webhooks")
	for _, webhook := range webhooks {
		bundle, _, _ := unstructured.NestedString(webhook.(map[string]any), "clientConfig", "caBundle")
		found = append(found, bundle)
	}
	return found
}

// TestManifestGrants holds the permissions in the lab's manifest against those that the stand-in needs.
func TestManifestGrants(t *testing.T) {
	manifest := filepath.Join("..", "repository", "certmanager", "cert-manager.yaml")
	standintest.Covers(t, standintest.Granted(t, manifest, "ClusterRole"), Rules())
}
