// Package auth decides who may use the HTTP API: bearer tokens, ID tokens of OpenID Connect, the sessions of browsers,
// and where a request has to come from.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/usage"
)

// shortest is the shortest token that is taken from a file: shorter ones can be guessed.
const shortest = 20

// Token is the token that API clients send, as its hash.
type Token struct{ hash [sha256.Size]byte }

// is compares in constant time.
func (t Token) is(presented string) bool {
	hash := sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1
}

// ReadToken reads the token from a file (see ReadPrivate), and returns it besides, so that it can be hidden.
func ReadToken(path string) (Token, string, error) {
	data, err := ReadPrivate(path)
	if err != nil {
		return Token{}, "", usage.Errorf("read the token of serve: %w", err)
	}
	words := strings.Fields(string(data))
	switch {
	case len(words) != 1:
		return Token{}, "", usage.Errorf("the token file %s has %d words: it has to hold one token and nothing else",
			path, len(words))
	case len(words[0]) < shortest:
		return Token{}, "", usage.Errorf("the token in %s has %d characters, and %d are the fewest: "+
			"openssl rand -hex 32 makes one", path, len(words[0]), shortest)
	}
	return Token{sha256.Sum256([]byte(words[0]))}, words[0], nil
}

// EnsureToken reads the token from a file, which it makes where it is missing.
func EnsureToken(path string) (Token, string, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return Token{}, "", fmt.Errorf("create the folder of the token: %w", err)
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return ReadToken(path)
	case err != nil:
		return Token{}, "", fmt.Errorf("create the token: %w", err)
	}
	_, err = file.WriteString(base64.RawURLEncoding.EncodeToString(secret) + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return Token{}, "", errors.Join(fmt.Errorf("write the token: %w", err), os.Remove(path))
	}
	return ReadToken(path)
}
