package environment

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/slipway-k8s/slipway/lab/pki"
)

// ensureToken reads the API token of the simulated project, or creates one: 64 letters and digits, as the real ones.
func ensureToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token := rand.Text() + rand.Text() + rand.Text() // 26 characters each
	token = token[:64]
	return token, pki.WriteFile(path, []byte(token+"\n"))
}
