package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"
	"filippo.io/age/agessh"
	"golang.org/x/crypto/ssh"
)

// Scope is the cluster that a key belongs to. What is authenticated with the key of one cluster is refused for another.
type Scope struct {
	Environment string // "hetzner" or "lab"
	Cluster     string // its name
}

func (s Scope) String() string { return s.Environment + "/" + s.Cluster }

// Purpose is what an authentication is for: one for a state is refused for a backup.
type Purpose string

// The purposes.
const (
	State  Purpose = "state"
	Backup Purpose = "backup"
)

// seedSize is that of an Ed25519 key's seed, and of every key that is derived (bytes).
const seedSize = ed25519.SeedSize

// Cluster is the key of one cluster, derived from a secret key of the operator: whoever has that one can derive it,
// and it gives away neither that one nor the key of another cluster. So a process that works for one cluster is given
// this key alone.
type Cluster struct {
	scope Scope
	seed  [seedSize]byte
}

// clusterIntro is what the text of a cluster's key begins with.
const clusterIntro = "SLIPWAY-CLUSTER-KEY-1:"

// ErrOtherCluster is wrapped by the error about the key of another cluster than the wanted one.
var ErrOtherCluster = errors.New("it is the key of another cluster")

// ParseClusters reads a file of secret keys, as ParseIdentities does, or the key of a cluster in the form of
// Cluster.Secret, and returns the keys of a cluster in the order of the file. The first authenticates what is
// written, all of them what is read: so a new key is put before the old one until everything is written anew. Errors
// do not contain the text.
func ParseClusters(file []byte, scope Scope) ([]Cluster, error) {
	if text := strings.TrimSpace(string(file)); strings.HasPrefix(text, clusterIntro) {
		c, err := parseCluster(text, scope)
		if err != nil {
			return nil, fmt.Errorf("read the key of cluster %s: %w", scope, err)
		}
		return []Cluster{c}, nil
	}
	secrets, err := materials(file)
	if err != nil {
		return nil, err
	}
	var all []Cluster
	for _, secret := range secrets {
		derived, err := hkdf.Key(sha256.New, secret, nil, "slipway cluster key v1\x00"+scope.String(), seedSize)
		if err != nil {
			return nil, fmt.Errorf("derive the key of cluster %s: %w", scope, err)
		}
		all = append(all, Cluster{scope: scope, seed: [seedSize]byte(derived)})
	}
	return all, nil
}

// materials are the secret keys of a file, each as the bytes that keys are derived from.
func materials(file []byte) ([][]byte, error) {
	if bytes.Contains(file, []byte(sshKey)) {
		key, err := ssh.ParseRawPrivateKey(file)
		if err != nil {
			return nil, fmt.Errorf("read the SSH private key: %w", err)
		}
		if pointer, ok := key.(*ed25519.PrivateKey); ok {
			key = *pointer
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("read the SSH private key: %w", err)
		}
		return [][]byte{der}, nil
	}
	identities, err := ParseIdentities(file)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, identity := range identities {
		switch i := identity.(type) {
		case *age.X25519Identity:
			all = append(all, []byte(i.String()))
		case *age.HybridIdentity:
			all = append(all, []byte(i.String()))
		default:
			return nil, fmt.Errorf("no key of a cluster can be derived from an identity of type %T", identity)
		}
	}
	return all, nil
}

func parseCluster(text string, wanted Scope) (Cluster, error) {
	scope, encoded, _ := strings.Cut(strings.TrimPrefix(text, clusterIntro), ":")
	if scope != wanted.String() {
		return Cluster{}, fmt.Errorf("%w (%q)", ErrOtherCluster, scope)
	}
	seed, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(seed) != seedSize {
		return Cluster{}, fmt.Errorf("it is not %d bytes in base64", seedSize)
	}
	return Cluster{scope: wanted, seed: [seedSize]byte(seed)}, nil
}

// String names the key without giving it away.
func (c Cluster) String() string { return "key of cluster " + c.scope.String() }

// GoString does the same for %#v.
func (c Cluster) GoString() string { return c.String() }

// Secret is the key as ParseClusters reads it, for a process that works for this cluster alone. It is a secret.
func (c Cluster) Secret() string {
	return clusterIntro + c.scope.String() + ":" + base64.RawURLEncoding.EncodeToString(c.seed[:])
}

// Identity opens what is encrypted for Recipient. To age both are an SSH key, the only kind that its interface makes
// from given bytes.
func (c Cluster) Identity() (age.Identity, error) {
	return agessh.NewEd25519Identity(ed25519.NewKeyFromSeed(c.seed[:]))
}

// Recipient is the public key of Identity.
func (c Cluster) Recipient() (age.Recipient, error) {
	public, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(c.seed[:]).Public())
	if err != nil {
		return nil, fmt.Errorf("make the public key of cluster %s: %w", c.scope, err)
	}
	return agessh.NewEd25519Recipient(public)
}

// Authenticator is the part of the key that authenticates for one purpose, and can do nothing else.
func (c Cluster) Authenticator(purpose Purpose) (Authenticator, error) {
	derived, err := hkdf.Key(sha256.New, c.seed[:], nil, "slipway authentication v1\x00"+string(purpose), seedSize)
	if err != nil {
		return Authenticator{}, fmt.Errorf("derive the key that authenticates the %s of %s: %w", purpose, c.scope, err)
	}
	return Authenticator{scope: c.scope, purpose: purpose, key: [seedSize]byte(derived)}, nil
}

// Authenticator makes and checks authentications, of one cluster and for one purpose.
type Authenticator struct {
	scope   Scope
	purpose Purpose
	key     [seedSize]byte
}

// authenticatorIntro is what the text of an Authenticator begins with.
const authenticatorIntro = "SLIPWAY-AUTHENTICATION-KEY-1:"

// ParseAuthenticator reads the form of Authenticator.Secret. Errors do not contain the text.
func ParseAuthenticator(text string, scope Scope, purpose Purpose) (Authenticator, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), authenticatorIntro)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 {
		return Authenticator{}, fmt.Errorf("read the key that authenticates the %s of %s: it does not begin with %s", purpose,
			scope, authenticatorIntro)
	}
	if parts[0] != string(purpose) || parts[1] != scope.String() {
		return Authenticator{}, fmt.Errorf("read the key that authenticates the %s of %s: %w, or for something else (%q)", purpose,
			scope, ErrOtherCluster, parts[0]+" of "+parts[1])
	}
	key, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(key) != seedSize {
		return Authenticator{}, fmt.Errorf("read the key that authenticates the %s of %s: it is not %d bytes in base64", purpose,
			scope, seedSize)
	}
	return Authenticator{scope: scope, purpose: purpose, key: [seedSize]byte(key)}, nil
}

// String names the key without giving it away.
func (a Authenticator) String() string {
	return fmt.Sprintf("key that authenticates the %s of %s", a.purpose, a.scope)
}

// GoString does the same for %#v.
func (a Authenticator) GoString() string { return a.String() }

// Secret is the key as ParseAuthenticator reads it. It is a secret.
func (a Authenticator) Secret() string {
	return authenticatorIntro + string(a.purpose) + ":" + a.scope.String() + ":" +
		base64.RawURLEncoding.EncodeToString(a.key[:])
}

// ID tells the key from others, and gives nothing of it away: 16 hexadecimal digits.
func (a Authenticator) ID() string { return hex.EncodeToString(a.Sum([]byte("slipway key ID"))[:8]) }

// Sum authenticates a message: an HMAC-SHA256, 32 bytes.
func (a Authenticator) Sum(message []byte) []byte {
	mac := hmac.New(sha256.New, a.key[:])
	mac.Write(message)
	return mac.Sum(nil)
}

// Authentic reports whether one of the keys made the sum of a message.
func Authentic(all []Authenticator, message, sum []byte) bool {
	return slices.ContainsFunc(all, func(a Authenticator) bool { return hmac.Equal(a.Sum(message), sum) })
}
