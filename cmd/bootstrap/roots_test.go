package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"
)

// Where the system has no root certificates, the command has some of its own.
func TestRootsWhereTheSystemHasNone(t *testing.T) {
	const child = "ROOTS_OF_A_CHILD"
	if os.Getenv(child) != "" {
		pool, err := x509.SystemCertPool()
		if err != nil || pool.Equal(x509.NewCertPool()) {
			t.Errorf("there are no root certificates: %v", err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), self, "-test.run", "^"+t.Name()+"$", "-test.count=1")
	none := t.TempDir()
	command.Env = []string{child + "=1", "SSL_CERT_FILE=" + none + "/none", "SSL_CERT_DIR=" + none}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
