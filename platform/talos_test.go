package platform

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	xcrypto "github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
)

// An expired talosconfig is named as such, with what writes a new one.
func TestExpiredTalosconfig(t *testing.T) {
	for ends, named := range map[time.Duration]bool{-time.Hour: true, time.Hour: false} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ended := time.Now().Add(ends)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: ended.Add(-24 * time.Hour), NotAfter: ended,
			IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		data, err := talosconfig.NewConfig("k8s", []string{"127.0.1.0"}, crt, &xcrypto.PEMEncodedCertificateAndKey{Crt: crt,
			Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		_, err = Tools{Files: FilesIn(t.TempDir())}.WithDefaults().Talos(data)
		if (err != nil) != named {
			t.Errorf("it ends in %s: %v", ends, err)
		}
		for _, says := range []string{"the client certificate of the talosconfig ended on " + ended.UTC().Format(time.RFC3339),
			"bootstrap talosconfig, or after a pivot bootstrap access, writes a new one"} {
			if named && !strings.Contains(err.Error(), says) {
				t.Errorf("it should say %q: %v", says, err)
			}
		}
	}
}
