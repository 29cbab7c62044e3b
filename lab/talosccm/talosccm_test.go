package talosccm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/plane/planetest"
	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

func TestMain(m *testing.M) { standintest.Main(m, Run) }

func must(t *testing.T, err error) {
	t.Helper()
	standintest.Must(t, err)
}

var servingUsages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}

func TestStandIn(t *testing.T) {
	control, config := planetest.Start(t, nil)
	k, err := client.New(config, client.Options{})
	must(t, err)
	standintest.Allow(t, k, "talos-ccm", Rules())
	identity, err := control.Kubeconfig("talos-ccm")
	must(t, err)
	port := standintest.FreePort(t)
	standintest.Start(t, standintest.Program{Args: []string{
		// The chart's.
		"--v=2", "--cloud-provider=talos",
		"--cloud-config=" + standintest.WriteFile(t, "ccm-config.yaml", []byte("global:\ntransformations:\n- {name: one}\n")),
		"--controllers=node-csr-approval", "--leader-elect-resource-name=cloud-controller-manager-talos",
		"--use-service-account-credentials",
		"--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics",
		// The test's.
		"--kubeconfig=" + standintest.WriteFile(t, "kubeconfig", identity), "--secure-port=" + port, "--leader-elect=false",
	}})
	// it signs its own certificate
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	standintest.Healthy(t, insecure, "https://127.0.0.1:"+port+"/healthz")

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}}
	must(t, k.Create(t.Context(), node))
	addresses := func(list ...corev1.NodeAddress) {
		t.Helper()
		before := node.DeepCopy()
		node.Status.Addresses = append(node.Status.Addresses, list...)
		// A patch, because the control plane's own controllers write the Node too.
		must(t, k.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	}
	addresses(corev1.NodeAddress{Type: corev1.NodeHostName, Address: "cp-1"},
		corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "127.9.0.1"})
	kubelet := asNode(t, control, "cp-1")

	fits := ask(t, kubelet, "fits", request(t, "cp-1", func(r *x509.CertificateRequest) {}), servingUsages)
	answered(t, k, fits, certificatesv1.CertificateApproved)

	mail := ask(t, kubelet, "mail",
		request(t, "cp-1", func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} }), servingUsages)
	if denial := answered(t, k, mail, certificatesv1.CertificateDenied); !strings.Contains(denial.Message,
		"email subjectAltNames are not allowed") {
		t.Errorf("denied with %q", denial.Message)
	}

	// An address that is not (yet) the Node's: no answer, until it is the Node's.
	early := ask(t, kubelet, "early", request(t, "cp-1", func(r *x509.CertificateRequest) {
		r.IPAddresses = append(r.IPAddresses, net.IPv4(127, 9, 0, 2))
	}), servingUsages)
	later := ask(t, kubelet, "later", request(t, "cp-1", func(r *x509.CertificateRequest) {}), servingUsages)
	answered(t, k, later, certificatesv1.CertificateApproved) // by now the early one has been looked at
	must(t, k.Get(t.Context(), client.ObjectKeyFromObject(early), early))
	if len(early.Status.Conditions) != 0 {
		t.Errorf("a request with an address that is none of its Node's was answered: %+v", early.Status.Conditions)
	}
	addresses(corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "127.9.0.2"})
	answered(t, k, early, certificatesv1.CertificateApproved)
}

// request is a kubelet's request for a serving certificate, changed by edit.
func request(t *testing.T, node string, edit func(*x509.CertificateRequest)) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: nodeUserPrefix + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{node}, IPAddresses: []net.IP{net.IPv4(127, 9, 0, 1)},
	}
	edit(template)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func ask(
	t *testing.T, kubelet client.Client, name string, data []byte, usages []certificatesv1.KeyUsage,
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: data,
			SignerName: certificatesv1.KubeletServingSignerName, Usages: usages},
	}
	must(t, kubelet.Create(t.Context(), csr))
	return csr
}

// answered waits for the answer to a request and checks it.
func answered(
	t *testing.T, k client.Client, csr *certificatesv1.CertificateSigningRequest, want certificatesv1.RequestConditionType,
) certificatesv1.CertificateSigningRequestCondition {
	t.Helper()
	standintest.Eventually(t, "an answer to request "+csr.Name, func(ctx context.Context) error {
		if err := k.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
			return err
		}
		if len(csr.Status.Conditions) == 0 {
			return fmt.Errorf("none yet")
		}
		return nil
	})
	answer := csr.Status.Conditions[0]
	if answer.Type != want {
		t.Errorf("request %s: %+v, want %s", csr.Name, answer, want)
	}
	return answer
}

func asNode(t *testing.T, control *plane.Single, name string) client.Client {
	t.Helper()
	kubeconfig, err := control.Kubeconfig(nodeUserPrefix+name, "system:nodes")
	must(t, err)
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	must(t, err)
	c, err := client.New(config, client.Options{})
	must(t, err)
	return c
}

func TestValidateRequest(t *testing.T) {
	good := func() *x509.CertificateRequest {
		return &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}}, DNSNames: []string{"a"},
		}
	}
	if err := validateRequest(good(), servingUsages); err != nil {
		t.Errorf("a good request is refused: %v", err)
	}
	if err := validateRequest(good(), append(servingUsages, certificatesv1.UsageKeyEncipherment)); err != nil {
		t.Errorf("a good request for an RSA key is refused: %v", err)
	}
	for name, c := range map[string]struct {
		edit   func(*x509.CertificateRequest)
		usages []certificatesv1.KeyUsage
	}{
		"no names": {func(r *x509.CertificateRequest) { r.DNSNames = nil }, servingUsages},
		"other organization": {func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} },
			servingUsages},
		"no node": {func(r *x509.CertificateRequest) { r.Subject.CommonName = "a" }, servingUsages},
		"client usage": {func(*x509.CertificateRequest) {},
			[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}},
		"missing usage": {func(*x509.CertificateRequest) {}, []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth}},
	} {
		r := good()
		c.edit(r)
		if err := validateRequest(r, c.usages); err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
}
