package caph

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// testTarget checks the stand-in's work in the workload cluster after its kubeconfig exists.
func (f *fixture) testTarget(t *testing.T, infra *api.HetznerCluster, server *api.HCloudMachine) {
	ctx := t.Context()
	if !conditions.IsFalse(infra, api.TargetClusterReady) {
		t.Errorf("before there is a kubeconfig: %v", infra.Status.Conditions)
	}
	must(t, f.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.name, Name: f.name + "-kubeconfig"},
		Data:       map[string][]byte{"value": f.admin},
	}))
	secret := &corev1.Secret{}
	eventually(t, "the token in the workload cluster", func(ctx context.Context) error {
		return f.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "hetzner"}, secret)
	})
	want := map[string]string{
		"hcloud": testToken, "network": strconv.FormatInt(infra.Status.Network.ID, 10),
		"apiserver-host": infra.Spec.ControlPlaneEndpoint.Host, "apiserver-port": "6443",
	}
	for key, value := range want {
		if string(secret.Data[key]) != value {
			t.Errorf("kube-system/hetzner: key %s is not as wanted", key)
		}
	}
	if len(secret.Data) != len(want) {
		t.Errorf("kube-system/hetzner has %d keys, want %d", len(secret.Data), len(want))
	}

	address := net.ParseIP(server.Status.Addresses[0].Address)
	for _, c := range []struct {
		name, dns string
		ip        net.IP
		want      certificatesv1.RequestConditionType
	}{
		{"fits", server.Name, address, certificatesv1.CertificateApproved},
		{"other-name", "somebody-else", address, certificatesv1.CertificateDenied},
		{"other-address", server.Name, net.IPv4(127, 9, 9, 9), certificatesv1.CertificateDenied},
	} {
		csr := &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: c.name},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    certificateRequest(t, server.Name, c.dns, c.ip),
				SignerName: certificatesv1.KubeletServingSignerName,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
					certificatesv1.UsageServerAuth},
			},
		}
		must(t, f.asNode(t, server.Name).Create(ctx, csr))
		eventually(t, "an answer to request "+c.name, func(ctx context.Context) error {
			if err := f.Get(ctx, client.ObjectKeyFromObject(csr), csr); err != nil {
				return err
			}
			if len(csr.Status.Conditions) == 0 {
				return fmt.Errorf("no answer yet")
			}
			return nil
		})
		if got := csr.Status.Conditions[0]; got.Type != c.want {
			t.Errorf("request %s: %+v, want %s", c.name, got, c.want)
		}
	}
}

func certificateRequest(t *testing.T, node, dns string, ip net.IP) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		DNSNames: []string{dns}, IPAddresses: []net.IP{ip},
	}, key)
	must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}
