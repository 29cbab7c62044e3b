package certmanager

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"

	"k8s.io/utils/ptr"
)

// cert-manager's defaults.
const (
	defaultDuration = 90 * 24 * time.Hour
	defaultRSABits  = 2048
)

// authority signs: a certificate with its key, and the chain above it. A nil authority lets a certificate sign itself.
type authority struct {
	chain []*x509.Certificate // the signing certificate first
	key   crypto.Signer
}

// readAuthority reads the tls.crt and tls.key of a CA issuer's Secret.
func readAuthority(certificates, key []byte) (*authority, error) {
	chain, err := parseCertificates(certificates)
	if err != nil {
		return nil, fmt.Errorf("tls.crt: %w", err)
	}
	if !chain[0].IsCA {
		return nil, errors.New("tls.crt: the certificate is not a CA")
	}
	signer, err := parseKey(key)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	if !samePublicKey(chain[0].PublicKey, signer) {
		return nil, errors.New("tls.key is not the key of tls.crt")
	}
	return &authority{chain: chain, key: signer}, nil
}

// issued is the content of a Certificate's Secret, in PEM.
type issued struct {
	certificate, key, ca []byte
}

// sign makes a certificate for spec: with the given key, by the authority or, where that is nil, by itself.
func sign(spec *CertificateSpec, key crypto.Signer, by *authority, now time.Time) (*issued, error) {
	template, err := template(spec, now)
	if err != nil {
		return nil, err
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.chain[0], by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	keyPEM, err := encodeKey(key, ptr.Deref(spec.PrivateKey, PrivateKey{}).Encoding)
	if err != nil {
		return nil, err
	}
	out := &issued{certificate: encodeCertificate(der), key: keyPEM}
	if by == nil {
		out.ca = out.certificate
		return out, nil
	}
	// The chain below the root goes with the certificate, the root is what clients trust.
	last := len(by.chain) - 1
	for _, intermediate := range by.chain[:last] {
		out.certificate = append(out.certificate, encodeCertificate(intermediate.Raw)...)
	}
	if !selfIssued(by.chain[last]) {
		out.certificate = append(out.certificate, encodeCertificate(by.chain[last].Raw)...)
	}
	out.ca = encodeCertificate(by.chain[last].Raw)
	return out, nil
}

func selfIssued(c *x509.Certificate) bool { return bytes.Equal(c.RawIssuer, c.RawSubject) }

// template is the certificate that spec describes, unsigned.
func template(spec *CertificateSpec, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	subject := ptr.Deref(spec.Subject, Subject{})
	out := &x509.Certificate{
		SerialNumber: serial,
		Subject: pkix.Name{
			CommonName:         spec.CommonName,
			Organization:       subject.Organizations,
			OrganizationalUnit: subject.OrganizationalUnits,
			Country:            subject.Countries,
			Locality:           subject.Localities,
			Province:           subject.Provinces,
		},
		NotBefore:             now,
		NotAfter:              now.Add(duration(spec)),
		DNSNames:              spec.DNSNames,
		EmailAddresses:        spec.EmailAddresses,
		IsCA:                  spec.IsCA,
		BasicConstraintsValid: true,
	}
	for _, text := range spec.IPAddresses {
		ip := net.ParseIP(text)
		if ip == nil {
			return nil, fmt.Errorf("spec.ipAddresses: %q is no IP address", text)
		}
		out.IPAddresses = append(out.IPAddresses, ip)
	}
	for _, text := range spec.URIs {
		uri, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("spec.uris: %w", err)
		}
		out.URIs = append(out.URIs, uri)
	}
	if out.KeyUsage, out.ExtKeyUsage, err = usages(spec); err != nil {
		return nil, err
	}
	return out, nil
}

func duration(spec *CertificateSpec) time.Duration {
	if spec.Duration != nil {
		return spec.Duration.Duration
	}
	return defaultDuration
}

// renewalTime is when a certificate is replaced: renewBefore its end, by default after two thirds of its life.
func renewalTime(spec *CertificateSpec, notBefore, notAfter time.Time) time.Time {
	before := notAfter.Sub(notBefore) / 3
	if spec.RenewBefore != nil && spec.RenewBefore.Duration < notAfter.Sub(notBefore) {
		before = spec.RenewBefore.Duration
	}
	return notAfter.Add(-before)
}

// keyUsages and extendedUsages map the API's names.
var (
	keyUsages = map[string]x509.KeyUsage{
		"signing":            x509.KeyUsageDigitalSignature,
		"digital signature":  x509.KeyUsageDigitalSignature,
		"content commitment": x509.KeyUsageContentCommitment,
		"key encipherment":   x509.KeyUsageKeyEncipherment,
		"data encipherment":  x509.KeyUsageDataEncipherment,
		"key agreement":      x509.KeyUsageKeyAgreement,
		"cert sign":          x509.KeyUsageCertSign,
		"crl sign":           x509.KeyUsageCRLSign,
		"encipher only":      x509.KeyUsageEncipherOnly,
		"decipher only":      x509.KeyUsageDecipherOnly,
	}
	extendedUsages = map[string]x509.ExtKeyUsage{
		"any":              x509.ExtKeyUsageAny,
		"server auth":      x509.ExtKeyUsageServerAuth,
		"client auth":      x509.ExtKeyUsageClientAuth,
		"code signing":     x509.ExtKeyUsageCodeSigning,
		"email protection": x509.ExtKeyUsageEmailProtection,
		"s/mime":           x509.ExtKeyUsageEmailProtection,
		"ipsec end system": x509.ExtKeyUsageIPSECEndSystem,
		"ipsec tunnel":     x509.ExtKeyUsageIPSECTunnel,
		"ipsec user":       x509.ExtKeyUsageIPSECUser,
		"timestamping":     x509.ExtKeyUsageTimeStamping,
		"ocsp signing":     x509.ExtKeyUsageOCSPSigning,
	}
)

// usages translates spec.usages; none means digital signature and key encipherment, and a CA may sign in any case.
func usages(spec *CertificateSpec) (usage x509.KeyUsage, extended []x509.ExtKeyUsage, err error) {
	for _, word := range spec.Usages {
		if bits, ok := keyUsages[word]; ok {
			usage |= bits
		} else if ext, ok := extendedUsages[word]; ok {
			extended = append(extended, ext)
		} else {
			return 0, nil, fmt.Errorf("spec.usages: %q is unknown", word)
		}
	}
	if len(spec.Usages) == 0 {
		usage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	}
	if spec.IsCA {
		usage |= x509.KeyUsageCertSign
	}
	return usage, extended, nil
}

// newKey creates the key that spec requests.
func newKey(spec *CertificateSpec) (crypto.Signer, error) {
	want := ptr.Deref(spec.PrivateKey, PrivateKey{})
	switch want.Algorithm {
	case "", "RSA":
		bits := want.Size
		if bits == 0 {
			bits = defaultRSABits
		}
		return rsa.GenerateKey(rand.Reader, bits)
	case "ECDSA":
		curve, err := curveOf(want.Size)
		if err != nil {
			return nil, err
		}
		return ecdsa.GenerateKey(curve, rand.Reader)
	case "Ed25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	default:
		return nil, fmt.Errorf("spec.privateKey.algorithm: %q is unknown", want.Algorithm)
	}
}

func curveOf(size int) (elliptic.Curve, error) {
	switch size {
	case 0, 256:
		return elliptic.P256(), nil
	case 384:
		return elliptic.P384(), nil
	case 521:
		return elliptic.P521(), nil
	default:
		return nil, fmt.Errorf("spec.privateKey.size: no ECDSA curve of %d bits", size)
	}
}

// keyFits says whether a key matches spec.
func keyFits(spec *CertificateSpec, key crypto.Signer) bool {
	want := ptr.Deref(spec.PrivateKey, PrivateKey{})
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return (want.Algorithm == "" || want.Algorithm == "RSA") &&
			(want.Size == 0 && key.N.BitLen() == defaultRSABits || want.Size == key.N.BitLen())
	case *ecdsa.PrivateKey:
		curve, err := curveOf(want.Size)
		return want.Algorithm == "ECDSA" && err == nil && key.Curve == curve
	case ed25519.PrivateKey:
		return want.Algorithm == "Ed25519"
	default:
		return false
	}
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// encodeKey writes a key in PEM, in its algorithm's own form unless PKCS8 is asked for.
func encodeKey(key crypto.Signer, encoding string) ([]byte, error) {
	if encoding != "PKCS8" {
		switch key := key.(type) {
		case *rsa.PrivateKey:
			return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
		case *ecdsa.PrivateKey:
			der, err := x509.MarshalECPrivateKey(key)
			if err != nil {
				return nil, fmt.Errorf("encoding the key: %w", err)
			}
			return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
		}
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func parseCertificates(data []byte) (list []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		list = append(list, certificate)
	}
	if len(list) == 0 {
		return nil, errors.New("no certificate in PEM")
	}
	return list, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("no key in PEM")
	}
	var key any
	var err error
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("parsing a key of type %q: %w", block.Type, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot sign", key)
	}
	return signer, nil
}

func samePublicKey(public crypto.PublicKey, key crypto.Signer) bool {
	comparable, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && comparable.Equal(public)
}
