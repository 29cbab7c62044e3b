package keys_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-k8s/slipway/internal/base/keys"
)

// secretKey is 32 bytes of 0x42, as age writes them.
const secretKey = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"

var scope = keys.Scope{Environment: "lab", Cluster: "k8s"}

func sshFile(t *testing.T) []byte {
	t.Helper()
	block, err := ssh.MarshalPrivateKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)), "")
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

func one(t *testing.T, file string, scope keys.Scope) keys.Cluster {
	t.Helper()
	all, err := keys.ParseClusters([]byte(file), scope)
	if err != nil || len(all) == 0 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	return all[0]
}

func sum(t *testing.T, c keys.Cluster, purpose keys.Purpose) []byte {
	t.Helper()
	a, err := c.Authenticator(purpose)
	if err != nil {
		t.Fatal(err)
	}
	return a.Sum([]byte("message"))
}

// TestDerivationStays holds what is derived: what was stored by an older release has to be authentic for a newer one.
func TestDerivationStays(t *testing.T) {
	for file, want := range map[string]string{
		secretKey:          "e0584650bb21a6fdf281eb6a68371225af592dee92c5d5ebf8e3127327d35d2d",
		string(sshFile(t)): "a5c57b147cbd3d79086e65ef4b7ce012282614eb50c0fdb9fcec43bee6353cfc",
	} {
		if got := hex.EncodeToString(sum(t, one(t, file, scope), keys.State)); got != want {
			t.Errorf("the sum is %s, not %s", got, want)
		}
	}
}

// TestEachClusterAndPurposeHasItsOwnKey holds that no sum fits another cluster, another environment or another purpose.
func TestEachClusterAndPurposeHasItsOwnKey(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []keys.Scope{scope, {Environment: "hetzner", Cluster: "k8s"}, {Environment: "lab", Cluster: "k8s2"}} {
		for _, purpose := range []keys.Purpose{keys.State, keys.Backup} {
			name, got := fmt.Sprint(s, purpose), string(sum(t, one(t, secretKey, s), purpose))
			if other, is := seen[got]; is {
				t.Errorf("%s and %s have the same sum", name, other)
			}
			seen[got] = name
		}
	}
}

// TestAClustersKeyAlone is the process that has the key of one cluster and no other secret: it opens and authenticates
// what the operator writes for that cluster, and the operator what it writes.
func TestAClustersKeyAlone(t *testing.T) {
	whole := one(t, secretKey, scope)
	alone := one(t, whole.Secret(), scope)
	if !bytes.Equal(sum(t, whole, keys.State), sum(t, alone, keys.State)) {
		t.Error("the two make other sums")
	}
	recipient, err := whole.Recipient()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := alone.Identity()
	if err != nil {
		t.Fatal(err)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, recipient)
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := age.Decrypt(&sealed, identity); err != nil {
		t.Error(err)
	} else if data, err := io.ReadAll(r); err != nil || len(data) != 0 {
		t.Errorf("%q, %v", data, err)
	}
	other := keys.Scope{Environment: "lab", Cluster: "shop"}
	if _, err := keys.ParseClusters([]byte(whole.Secret()), other); !errors.Is(err, keys.ErrOtherCluster) {
		t.Errorf("the key of k8s for shop: %v", err)
	}
}

func TestSeveralKeys(t *testing.T) {
	second, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	all, err := keys.ParseClusters([]byte("# the new one\n"+second.String()+"\n"+secretKey+"\n"), scope)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d keys, %v", len(all), err)
	}
	if !bytes.Equal(sum(t, all[1], keys.State), sum(t, one(t, secretKey, scope), keys.State)) {
		t.Error("the second key is not that of the second line")
	}
	var both []keys.Authenticator
	for _, c := range all {
		a, err := c.Authenticator(keys.State)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, a)
	}
	message := []byte("message")
	for i, a := range both {
		if !keys.Authentic(both, message, a.Sum(message)) {
			t.Errorf("the sum of key %d is not authentic", i)
		}
	}
	for _, wrong := range [][]byte{nil, {}, both[0].Sum([]byte("another")), both[0].Sum(message)[:16]} {
		if keys.Authentic(both, message, wrong) {
			t.Errorf("%x is authentic", wrong)
		}
	}
}

func TestAuthenticatorAlone(t *testing.T) {
	made, err := one(t, secretKey, scope).Authenticator(keys.Backup)
	if err != nil {
		t.Fatal(err)
	}
	read, err := keys.ParseAuthenticator(made.Secret()+"\n", scope, keys.Backup)
	if err != nil || !bytes.Equal(read.Sum(nil), made.Sum(nil)) {
		t.Errorf("another key was read, %v", err)
	}
	for name, try := range map[string]func() (keys.Authenticator, error){
		"another cluster": func() (keys.Authenticator, error) {
			return keys.ParseAuthenticator(made.Secret(), keys.Scope{Environment: "lab", Cluster: "shop"}, keys.Backup)
		},
		"another purpose": func() (keys.Authenticator, error) {
			return keys.ParseAuthenticator(made.Secret(), scope, keys.State)
		},
		"cut off": func() (keys.Authenticator, error) {
			return keys.ParseAuthenticator(made.Secret()[:len(made.Secret())-4], scope, keys.Backup)
		},
		"a secret key": func() (keys.Authenticator, error) { return keys.ParseAuthenticator(secretKey, scope, keys.Backup) },
	} {
		if _, err := try(); err == nil {
			t.Errorf("%s was accepted", name)
		} else if strings.Contains(err.Error(), made.Secret()[len(made.Secret())-20:]) || strings.Contains(err.Error(), secretKey) {
			t.Errorf("%s: the error has the key", name)
		}
	}
}

// TestKeysAreNotPrinted holds that a key which is printed by mistake is not given away.
func TestKeysAreNotPrinted(t *testing.T) {
	c := one(t, secretKey, scope)
	a, err := c.Authenticator(keys.State)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{c.Secret(), a.Secret()} {
		encoded := secret[strings.LastIndex(secret, ":")+1:]
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			for _, value := range []any{c, a} {
				if text := fmt.Sprintf(format, value); strings.Contains(text, encoded) || strings.Contains(text, "[32]") {
					t.Errorf("%s prints %s", format, text)
				}
			}
		}
	}
}
