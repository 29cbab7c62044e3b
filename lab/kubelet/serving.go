package kubelet

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
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"

	"github.com/slipway-k8s/slipway/lab/pki"
)

const (
	// servingName is the certificate's and the key's file name without extension.
	servingName = "kubelet-serving"
	// servingRetry is the pause before a new request when one was denied or failed.
	servingRetry = 5 * time.Second
)

// RenewServingCertificate has the kubelet request a serving certificate where the folder has none any more.
func (k *Kubelet) RenewServingCertificate() { k.renewServing.raise() }

// keepServingCertificate sees to a serving certificate, now and after every RenewServingCertificate, until ctx is done.
func (k *Kubelet) keepServingCertificate(ctx context.Context) {
	for ctx.Err() == nil {
		renew := k.renewServing.next()
		trying, stop := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			k.ensureServingCertificate(trying)
		}()
		select {
		case <-ctx.Done():
		case <-renew:
		}
		stop() // a request of before is for a client that is not accepted any more
		<-ended
	}
}

// ensureServingCertificate requests a serving certificate, unless the folder has one that is valid.
func (k *Kubelet) ensureServingCertificate(ctx context.Context) {
	files := filepath.Join(k.pkiDir(), servingName)
	if pair, err := tls.LoadX509KeyPair(files+".crt", files+".key"); err == nil && time.Now().Before(pair.Leaf.NotAfter) {
		k.serving.Store(servingIssued(pair.Leaf))
		return
	}
	for {
		err := k.requestServingCertificate(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		k.serving.Store("not issued: " + err.Error())
		k.log.Warn("the serving certificate was not issued", "reason", err)
		if !sleep(ctx, servingRetry) {
			return
		}
	}
}

// requestServingCertificate requests one and waits for its approval.
func (k *Kubelet) requestServingCertificate(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("create its key: %w", err)
	}
	var ips []net.IP // those that the Node reports: approvers compare
	for _, a := range k.node.Load().Status.Addresses {
		if ip := net.ParseIP(a.Address); ip != nil {
			ips = append(ips, ip)
		}
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + k.cfg.Node, Organization: []string{"system:nodes"}},
		DNSNames:    []string{k.cfg.Node},
		IPAddresses: ips,
	}, key)
	if err != nil {
		return fmt.Errorf("create the request: %w", err)
	}
	name, uid, err := csr.RequestCertificate(k.client,
		pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateRequestBlockType, Bytes: request}), "",
		certificatesv1.KubeletServingSignerName, nil,
		[]certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}, key)
	if err != nil {
		return fmt.Errorf("send the request: %w", err)
	}
	k.serving.Store("waits for the approval of CertificateSigningRequest " + name)
	cert, err := csr.WaitForCertificate(ctx, k.client, name, uid)
	if err != nil {
		return fmt.Errorf("wait for CertificateSigningRequest %s to be approved and signed: %w", name, err)
	}
	return k.storeServingCertificate(cert, key)
}

func (k *Kubelet) storeServingCertificate(cert []byte, key *ecdsa.PrivateKey) error {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode its key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, keyPEM)
	if err != nil {
		return fmt.Errorf("read the certificate that was issued: %w", err)
	}
	if _, _, err := (pki.Pair{Cert: cert, Key: keyPEM}).Write(k.pkiDir(), servingName); err != nil {
		return fmt.Errorf("store it: %w", err)
	}
	k.serving.Store(servingIssued(pair.Leaf))
	k.log.Info("the serving certificate is issued", "until", pair.Leaf.NotAfter)
	return nil
}

func (k *Kubelet) pkiDir() string { return filepath.Join(k.cfg.Dir, "pki") }

func servingIssued(leaf *x509.Certificate) string {
	return fmt.Sprintf("issued by %s, valid until %s", leaf.Issuer.CommonName, leaf.NotAfter.UTC().Format(time.RFC3339))
}
