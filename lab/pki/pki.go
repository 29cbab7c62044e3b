// Package pki makes the certificates of the lab: authorities, the certificates that they sign, and the keys that sign
// service account tokens. It reads authorities of other makers too, so that a simulated server can sign with the
// cluster's own ones out of its machine configuration.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	// caLife exceeds the life of any lab: an authority is kept as long as the lab's folder.
	caLife = 10 * 365 * 24 * time.Hour
	// certLife is long enough that nothing in a lab ever needs to be renewed.
	certLife = 365 * 24 * time.Hour
	// clockSkew is how far in the past a certificate begins, for clients whose clock is behind.
	clockSkew = time.Hour
)

// Pair is a certificate and its private key, each in PEM.
type Pair struct {
	Cert, Key []byte
}

// TLS returns the pair in the form that crypto/tls serves and presents.
func (p Pair) TLS() (tls.Certificate, error) {
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read certificate and key: %w", err)
	}
	return c, nil
}

// CA is a certificate authority that can sign.
type CA struct {
	pair Pair
	cert *x509.Certificate
	key  crypto.Signer
}

// NewCA creates a self-signed authority.
func NewCA(commonName string) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of authority %q: %w", commonName, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", commonName, err)
	}
	pair, err := encode(der, key)
	if err != nil {
		return nil, err
	}
	return ParseCA(pair)
}

// ParseCA reads an authority: an RSA, ECDSA or Ed25519 key in PKCS #1, SEC 1 or PKCS
// #8, as Kubernetes and Talos write them.
func ParseCA(pair Pair) (*CA, error) {
	c, err := pair.TLS()
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("read authority: certificate %q may not sign others", cert.Subject.CommonName)
	}
	key, ok := c.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("read authority %q: a key of type %T cannot sign", cert.Subject.CommonName, c.PrivateKey)
	}
	return &CA{pair: pair, cert: cert, key: key}, nil
}

// Pair returns the authority's certificate and key.
func (c *CA) Pair() Pair { return c.pair }

// Cert returns the authority's certificate in PEM.
func (c *CA) Cert() []byte { return c.pair.Cert }

// Certificate returns the authority's certificate.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// Pool returns a pool that trusts this authority alone.
func (c *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// Request describes a certificate. It is valid for servers and clients: etcd peers are both.
type Request struct {
	// CommonName is the user name where Kubernetes reads the certificate.
	CommonName string
	// Organizations are the groups where Kubernetes reads the certificate.
	Organizations []string
	// Hosts are the names and IP addresses under which a server with this certificate is reached.
	Hosts []string
}

// Issue signs a new certificate with a new key.
func (c *CA) Issue(r Request) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate the key of %q: %w", r.CommonName, err)
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: r.CommonName, Organization: r.Organizations},
		NotBefore:    now.Add(-clockSkew),
		NotAfter:     now.Add(certLife),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range r.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), c.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate %q by %q: %w", r.CommonName, c.cert.Subject.CommonName, err)
	}
	return encode(der, key)
}

// Reissue signs a certificate that this authority has signed once more, for the same key, name and length of time, to
// be good until a time that may have passed. Both are in PEM.
func (c *CA) Reissue(signed []byte, until time.Time) ([]byte, error) {
	block, _ := pem.Decode(signed)
	if block == nil {
		return nil, errors.New("sign a certificate once more: it is not in PEM")
	}
	template, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate once more: %w", err)
	}
	if err := template.CheckSignatureFrom(c.cert); err != nil {
		return nil, fmt.Errorf("sign certificate %q once more: %q has not signed it: %w", template.Subject.CommonName,
			c.cert.Subject.CommonName, err)
	}
	if template.SerialNumber, err = newSerial(); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = until.Add(-template.NotAfter.Sub(template.NotBefore)), until
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, template.PublicKey, c.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %q once more: %w", template.Subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// NewServiceAccountKey makes an RSA key that signs service account tokens, in PEM: kube-apiserver's tokens are RS256 by
// default, and every verifier knows those.
func NewServiceAccountKey() ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, fmt.Errorf("generate the service account key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
}

func encode(der []byte, key crypto.Signer) (Pair, error) {
	k, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("encode private key: %w", err)
	}
	return Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: k}),
	}, nil
}

// newSerial draws 127 bits: two certificates of one authority never meet, and the DER integer stays positive.
func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return n, nil
}
