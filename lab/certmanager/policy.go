package certmanager

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Annotations and the label that cert-manager puts on the Secrets it writes.
const (
	annotationCertificate = group + "/certificate-name"
	annotationIssuerName  = group + "/issuer-name"
	annotationIssuerKind  = group + "/issuer-kind"
	annotationIssuerGroup = group + "/issuer-group"
	annotationCommonName  = group + "/common-name"
	annotationAltNames    = group + "/alt-names"
	annotationIPs         = group + "/ip-sans"
	annotationURIs        = group + "/uri-sans"

	labelControlled = "controller.cert-manager.io/fao"
)

// violation is why a Secret does not match its Certificate, in cert-manager's words.
type violation struct {
	reason, message string
}

// held is the certificate in a Secret, with its key.
type held struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// inspect compares a Certificate with its Secret, nil if there is none. violation is nil if they match.
func inspect(c *Certificate, secret *corev1.Secret, now time.Time) (*held, *violation) {
	if secret == nil {
		return nil, &violation{"DoesNotExist", "Issuing certificate as Secret does not exist"}
	}
	if len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
		return nil, &violation{"MissingData", "Issuing certificate as Secret does not contain a certificate and its key"}
	}
	chain, err := parseCertificates(secret.Data[corev1.TLSCertKey])
	if err != nil {
		return nil, &violation{"InvalidCertificate",
			fmt.Sprintf("Issuing certificate as Secret contains an invalid certificate: %s", err)}
	}
	key, err := parseKey(secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, &violation{"InvalidKeyPair", fmt.Sprintf("Issuing certificate as Secret contains an invalid key: %s",
			err)}
	}
	have := &held{certificate: chain[0], key: key}
	if !samePublicKey(have.certificate.PublicKey, key) {
		return have, &violation{"InvalidKeyPair",
			"Issuing certificate as Secret contains a key that is not the certificate's"}
	}
	for annotation, want := range issuerAnnotations(c) {
		if got := secret.Annotations[annotation]; got != want {
			return have, &violation{"IncorrectIssuer",
				fmt.Sprintf("Issuing certificate as Secret was previously issued by another issuer (%s is %q, not %q)", annotation,
					got, want)}
		}
	}
	if !keyFits(&c.Spec, key) {
		return have, &violation{"SecretMismatch", "Issuing certificate as Existing private key is not up to date for spec"}
	}
	if field := differs(&c.Spec, have.certificate); field != "" {
		return have, &violation{"RequestChanged",
			fmt.Sprintf("Fields on existing certificate are not up to date for spec: [%s]", field)}
	}
	if now.After(have.certificate.NotAfter) {
		return have, &violation{"Expired",
			fmt.Sprintf("Certificate expired on %s", have.certificate.NotAfter.Format(time.RFC1123))}
	}
	if at := renewalTime(&c.Spec, have.certificate.NotBefore, have.certificate.NotAfter); !now.Before(at) {
		return have, &violation{"Renewing", fmt.Sprintf("Renewing certificate as renewal was scheduled at %s",
			at.Format(time.RFC1123))}
	}
	return have, nil
}

func issuerAnnotations(c *Certificate) map[string]string {
	kind := c.Spec.IssuerRef.Kind
	if kind == "" {
		kind = "Issuer"
	}
	return map[string]string{
		annotationIssuerName:  c.Spec.IssuerRef.Name,
		annotationIssuerKind:  kind,
		annotationIssuerGroup: c.Spec.IssuerRef.Group,
	}
}

// differs names the field of spec that a certificate does not meet, or nothing.
func differs(spec *CertificateSpec, have *x509.Certificate) string {
	want, err := template(spec, have.NotBefore)
	if err != nil {
		return "spec" // signing it again returns the error
	}
	text := func(ips []net.IP) (out []string) {
		for _, ip := range ips {
			out = append(out, ip.String())
		}
		return out
	}
	uris := func(list []*url.URL) (out []string) {
		for _, uri := range list {
			out = append(out, uri.String())
		}
		return out
	}
	for _, field := range []struct {
		name string
		same bool
	}{
		{"spec.commonName", want.Subject.CommonName == have.Subject.CommonName},
		{"spec.subject", sameSet(want.Subject.Organization, have.Subject.Organization) &&
			sameSet(want.Subject.OrganizationalUnit, have.Subject.OrganizationalUnit) &&
			sameSet(want.Subject.Country, have.Subject.Country) &&
			sameSet(want.Subject.Locality, have.Subject.Locality) &&
			sameSet(want.Subject.Province, have.Subject.Province)},
		{"spec.dnsNames", sameSet(want.DNSNames, have.DNSNames)},
		{"spec.ipAddresses", sameSet(text(want.IPAddresses), text(have.IPAddresses))},
		{"spec.uris", sameSet(uris(want.URIs), uris(have.URIs))},
		{"spec.emailAddresses", sameSet(want.EmailAddresses, have.EmailAddresses)},
		{"spec.isCA", want.IsCA == have.IsCA},
		{"spec.usages", want.KeyUsage == have.KeyUsage && sameSet(want.ExtKeyUsage, have.ExtKeyUsage)},
		{"spec.duration", want.NotAfter.Sub(want.NotBefore) == have.NotAfter.Sub(have.NotBefore)},
	} {
		if !field.same {
			return field.name
		}
	}
	return ""
}

func sameSet[T string | x509.ExtKeyUsage](a, b []T) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}
