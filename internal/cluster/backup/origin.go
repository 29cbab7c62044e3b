package backup

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// ErrForged is wrapped by the error about a backup that is not what the writer with its key authenticated.
var ErrForged = errors.New("the backup is forged")

// Sealing is who can open a backup.
type Sealing string

// The kinds of sealing.
const (
	Plain        Sealing = "none" // everyone
	ForKeys      Sealing = "keys" // whoever has one of the secret keys. Everyone who has the public keys can write one
	ByPassphrase Sealing = "passphrase"
)

// Proof is what shows who made a backup.
type Proof string

// The proofs.
const (
	ByNothing       Proof = "none"
	ByUnknownKey    Proof = "unknown-key" // a key that the reader was not given: it shows nothing
	ByKey           Proof = "key"         // of the cluster that the header names
	ByThePassphrase Proof = "passphrase"  // only who knows it can write what it opens
)

// Origin is what a file shows of who can open it and who made it.
type Origin struct {
	Sealed        Sealing  `json:"sealed"`               // "none", "keys" or "passphrase"
	Recipients    []string `json:"recipients,omitempty"` // the types of the keys that open it, as age names them
	Authenticated Proof    `json:"authenticated"`        // "none", "unknown-key", "key" or "passphrase"
	Key           string   `json:"key,omitempty"`        // the ID of the key that authenticates it
}

// Authentic reports whether it is shown that the backup was made with a secret of its reader.
func (o Origin) Authentic() bool {
	return o.Authenticated == ByKey || o.Authenticated == ByThePassphrase
}

// authentication is the entry that authenticates a manifest, and by it everything else.
type authentication struct {
	Key string `json:"key"` // ID
	Sum string `json:"sum"` // hexadecimal
}

// authenticationIntro is put before the manifest, so that a sum fits nothing else.
const authenticationIntro = "slipway backup 2\x00"

func authenticate(by keys.Authenticator, manifest []byte) authentication {
	return authentication{Key: by.ID(), Sum: hex.EncodeToString(by.Sum(slices.Concat([]byte(authenticationIntro), manifest)))}
}

// judge says by what a manifest is authenticated.
func (a *authentication) judge(origin Origin, manifest []byte, by []keys.Authenticator) (Origin, error) {
	if a == nil || origin.Sealed == ByPassphrase {
		return origin, nil
	}
	origin.Key = a.Key
	mine := slices.DeleteFunc(slices.Clone(by), func(k keys.Authenticator) bool { return k.ID() != a.Key })
	if len(mine) == 0 {
		origin.Authenticated = ByUnknownKey
		return origin, nil
	}
	sum, err := hex.DecodeString(a.Sum)
	if err != nil || !keys.Authentic(mine, slices.Concat([]byte(authenticationIntro), manifest), sum) {
		return origin, fmt.Errorf("%w: its authentication by the %s is wrong", ErrForged, mine[0])
	}
	origin.Authenticated = ByKey
	return origin, nil
}

// String is "sealed for 2 keys (X25519, ssh-ed25519)".
func (o Origin) String() string {
	switch o.Sealed {
	case ForKeys:
		return fmt.Sprintf("sealed for %d keys (%s)", len(o.Recipients), strings.Join(o.Recipients, ", "))
	case ByPassphrase:
		return "sealed with a passphrase"
	}
	return "a plain file: not encrypted"
}
