package remotestate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// A key is hidden wherever it was read from, also out of the lines that age-keygen writes around it.
func TestKeysAreHidden(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	text := "# created: 2026-01-02T03:04:05Z\n# public key: " + key.Recipient().String() + "\n" + key.String() + "\n"
	file := filepath.Join(t.TempDir(), "key.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for from, a := range map[string]Access{
		"the environment": {Environment: map[string]string{settings.StateIdentityVariable: text}},
		"a file":          {Config: config.Config{StateIdentityFile: file}},
	} {
		a.Hide = &redact.Redactor{}
		if _, err := a.Keys(keys.Scope{Environment: "hetzner", Cluster: "k8s"}); err != nil {
			t.Fatal(err)
		}
		if said := a.Hide.Text("key " + key.String()); strings.Contains(said, key.String()) {
			t.Errorf("from %s: %s", from, said)
		}
	}
}
