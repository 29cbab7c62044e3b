package ownership

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/platform"
)

// IdentityFile is the file of the state folder that has its identity.
const IdentityFile = "identity"

var IdentityForm = regexp.MustCompile(`^[0-9a-f]{16}$`)

// Identity is what all runs with this state folder have in common, and no others. They never run at once, as the
// journal's lock ensures. So whatever carries it at Hetzner is this run's, or that of an ended one.
func Identity(tools platform.Tools) (string, error) {
	if id, err := KnownIdentity(tools); err != nil || id != "" {
		return id, err
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make up an identity for this state folder: %w", err)
	}
	id := hex.EncodeToString(random)
	return id, tools.Files.Write(IdentityFile, []byte(id+"\n"))
}

// KnownIdentity is the identity of a state folder that has one; empty: it has none, and nothing carries it.
func KnownIdentity(tools platform.Tools) (string, error) {
	data, err := tools.Files.Read(IdentityFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read this state folder's identity: %w", err)
	}
	if id := strings.TrimSpace(string(data)); IdentityForm.MatchString(id) {
		return id, nil
	}
	return "", nil
}
