package talos

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"

	siderox509 "github.com/siderolabs/crypto/x509"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// authorities are what may change of a machine configuration without a reboot.
type authorities struct {
	machine authority // of the machine API: machine.ca and machine.acceptedCAs
	cluster authority // of Kubernetes: cluster.ca and cluster.acceptedCAs
}

func (a authorities) equal(b authorities) bool {
	return a.machine.equal(b.machine) && a.cluster.equal(b.cluster)
}

// authority is the authority that issues certificates, and those that are trusted.
type authority struct {
	issuing  *pki.CA        // nil where the configuration has its certificate alone, as a worker's does
	accepted []byte         // certificates in PEM: the issuing authority's first
	pool     *x509.CertPool // of accepted
}

func (a authority) equal(b authority) bool {
	return bytes.Equal(a.accepted, b.accepted) && sameCA(a.issuing, b.issuing)
}

// accepts says whether a certificate is one of the accepted authorities', or is signed by one and has not expired.
func (a authority) accepts(cert *x509.Certificate) bool {
	_, err := cert.Verify(x509.VerifyOptions{Roots: a.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

func sameCA(a, b *pki.CA) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(a.Cert(), b.Cert()) && bytes.Equal(a.Pair().Key, b.Pair().Key)
}

// authorities reads the authorities of a configuration. An error is what a server cannot run with.
func (c machineConfig) authorities() (authorities, error) {
	security, cluster := c.Machine().Security(), c.Cluster()
	var all authorities
	var err error
	if all.machine, err = readAuthority(security.IssuingCA(), security.AcceptedCAs()); err != nil {
		return authorities{}, fmt.Errorf("machine.ca: %w", err)
	}
	if len(all.machine.accepted) == 0 {
		return authorities{}, errors.New("machine.ca: the machine configuration has none")
	}
	if all.cluster, err = readAuthority(cluster.IssuingCA(), cluster.AcceptedCAs()); err != nil {
		return authorities{}, fmt.Errorf("cluster.ca: %w", err)
	}
	if c.controlPlane() && all.cluster.issuing == nil {
		return authorities{}, errors.New("cluster.ca: the machine configuration has none with a key")
	}
	return all, nil
}

func readAuthority(
	issuing *siderox509.PEMEncodedCertificateAndKey, accepted []*siderox509.PEMEncodedCertificate,
) (a authority, err error) {
	a.pool = x509.NewCertPool()
	accept := func(cert []byte) error {
		if !a.pool.AppendCertsFromPEM(cert) {
			return errors.New("an authority holds no certificate")
		}
		a.accepted = append(append(a.accepted, bytes.TrimSpace(cert)...), '\n')
		return nil
	}
	if issuing != nil {
		if err := accept(issuing.Crt); err != nil {
			return authority{}, err
		}
		if len(issuing.Key) > 0 {
			if a.issuing, err = parseCA(issuing); err != nil {
				return authority{}, err
			}
		}
	}
	for _, ca := range accepted {
		if err := accept(ca.Crt); err != nil {
			return authority{}, fmt.Errorf("acceptedCAs: %w", err)
		}
	}
	return a, nil
}

// machineSigner and clusterSigner are the authorities that sign the certificates of the machine API, and of the Node.
func (y *system) machineSigner() (ca *pki.CA, ownChanged, othersChanged <-chan struct{}) {
	a, changed := y.authorities.get()
	ca, others := y.signer(a.machine, func(a affiliate) *pki.CA { return a.machineCA })
	return ca, changed, others
}

func (y *system) clusterSigner() (ca *pki.CA, ownChanged, othersChanged <-chan struct{}) {
	a, changed := y.authorities.get()
	ca, others := y.signer(a.cluster, func(a affiliate) *pki.CA { return a.clusterCA })
	return ca, changed, others
}

// signer returns the server's own authority or, on a worker, which has no key, that of a control plane server which the
// worker's configuration accepts; nil while there is none. The channel is closed when another server changes.
func (y *system) signer(own authority, of func(affiliate) *pki.CA) (*pki.CA, <-chan struct{}) {
	others, changed := y.talos.discovery.others(y.cluster, y.id)
	if own.issuing != nil {
		return own.issuing, changed
	}
	for _, a := range others {
		if ca := of(a); ca != nil && own.accepts(ca.Certificate()) {
			return ca, changed
		}
	}
	return nil, changed
}

// awaitSigner waits until there is a signer.
func awaitSigner(ctx context.Context, signer func() (*pki.CA, <-chan struct{}, <-chan struct{})) (*pki.CA, error) {
	for {
		ca, ownChanged, othersChanged := signer()
		if ca != nil {
			return ca, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ownChanged:
		case <-othersChanged:
		}
	}
}
