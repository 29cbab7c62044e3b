// Package keys reads the operator's keys, and derives from a secret one the key of a single cluster, which opens and
// authenticates what is stored of that cluster: its state and its backups.
package keys

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
)

// ParseRecipients reads public keys, separated by commas or lines: age's own (age1…) and SSH's (ssh-ed25519 …, ssh-rsa
// …).
func ParseRecipients(text string) ([]age.Recipient, error) {
	var found []age.Recipient
	for i, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '\n' }) {
		word = strings.TrimSpace(word)
		if word == "" || strings.HasPrefix(word, "#") {
			continue
		}
		r, err := parseRecipient(word)
		if err != nil {
			return nil, fmt.Errorf("recipient %d: %w", i+1, err)
		}
		found = append(found, r)
	}
	return found, nil
}

// parseRecipient does not repeat the text in an error: it may be a secret key in the wrong place.
func parseRecipient(text string) (age.Recipient, error) {
	switch {
	case strings.HasPrefix(text, "AGE-SECRET-KEY-"):
		return nil, errors.New("it is a secret key: write the public key that belongs to it (age-keygen -y)")
	case strings.HasPrefix(text, "ssh-"):
		return agessh.ParseRecipient(text)
	case strings.HasPrefix(text, "age1pq1"):
		return age.ParseHybridRecipient(text)
	case strings.HasPrefix(text, "age1"):
		return age.ParseX25519Recipient(text)
	}
	return nil, errors.New("it is neither an age public key (age1…) nor an SSH one (ssh-ed25519 …, ssh-rsa …)")
}

// sshKey is in the first line of a private key in PEM.
const sshKey = "PRIVATE KEY-----"

// ParseIdentities reads a file of secret keys: one of age's (AGE-SECRET-KEY-1… a line), or an SSH private key without
// passphrase.
func ParseIdentities(file []byte) ([]age.Identity, error) {
	if bytes.Contains(file, []byte(sshKey)) {
		identity, err := agessh.ParseIdentity(file)
		if err != nil {
			return nil, fmt.Errorf("read the SSH private key: %w", err)
		}
		return []age.Identity{identity}, nil
	}
	identities, err := age.ParseIdentities(bytes.NewReader(file))
	if err != nil {
		return nil, fmt.Errorf("read the age identities: %w", err)
	}
	return identities, nil
}
