package backup_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// goldenKey opens what is in testdata.
const goldenKey = "AGE-SECRET-KEY-1GFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPYYSJZGFPQ4EGAEX"

var scope = keys.Scope{Environment: "lab", Cluster: "k8s"}

func authenticator(t *testing.T, key string, of keys.Scope) keys.Authenticator {
	t.Helper()
	all, err := keys.ParseClusters([]byte(key), of)
	if err != nil {
		t.Fatal(err)
	}
	a, err := all[0].Authenticator(keys.Backup)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// writeOf writes a backup of the lab's cluster k8s.
func writeOf(t *testing.T, seal backup.Seal) []byte {
	t.Helper()
	c := contents()
	c.Header.Environment = "lab"
	var file bytes.Buffer
	if _, err := backup.Write(&file, seal, c, bytes.NewReader(snapshot(t, 4096))); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// originOf reads a backup with the keys of the cluster that it says it is of.
func originOf(file []byte, by []keys.Authenticator, identities ...age.Identity) (backup.Origin, error) {
	a, err := backup.Open(bytes.NewReader(file), identities...)
	if err != nil {
		return backup.Origin{}, err
	}
	c, err := a.Read(io.Discard, by...)
	if err != nil {
		return backup.Origin{}, err
	}
	return c.Origin, nil
}

// TestOrigin says of each kind of file who can open it and what shows who made it.
func TestOrigin(t *testing.T) {
	key, other := identity(t), identity(t)
	recipients := []age.Recipient{key.Recipient(), other.Recipient()}
	mine, theirs := authenticator(t, key.String(), scope), authenticator(t, other.String(), scope)
	elsewhere := authenticator(t, key.String(), keys.Scope{Environment: "lab", Cluster: "shop"})
	word, err := backup.PassphraseSeal("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	byWord, err := backup.PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		seal    backup.Seal
		with    age.Identity
		sealed  backup.Sealing
		is      backup.Proof
		sealing int
	}{
		"plain":                           {backup.Seal{Unencrypted: true}, nil, backup.Plain, backup.ByNothing, 0},
		"plain, authenticated":            {backup.Seal{Unencrypted: true, Authenticator: &mine}, nil, backup.Plain, backup.ByKey, 0},
		"sealed by whoever has the keys":  {backup.Seal{Recipients: recipients}, key, backup.ForKeys, backup.ByNothing, 2},
		"authenticated":                   {backup.Seal{Recipients: recipients, Authenticator: &mine}, other, backup.ForKeys, backup.ByKey, 2},
		"by a key that is not at hand":    {backup.Seal{Recipients: recipients, Authenticator: &theirs}, key, backup.ForKeys, backup.ByUnknownKey, 2},
		"by the key of another cluster":   {backup.Seal{Recipients: recipients, Authenticator: &elsewhere}, key, backup.ForKeys, backup.ByUnknownKey, 2},
		"by who knows the passphrase":     {word, byWord, backup.ByPassphrase, backup.ByThePassphrase, 0},
		"by a passphrase, with a key too": {word, byWord, backup.ByPassphrase, backup.ByThePassphrase, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var with []age.Identity
			if tt.with != nil {
				with = []age.Identity{tt.with}
			}
			is, err := originOf(writeOf(t, tt.seal), []keys.Authenticator{mine}, with...)
			if err != nil {
				t.Fatal(err)
			}
			if is.Sealed != tt.sealed || is.Authenticated != tt.is || len(is.Recipients) != tt.sealing {
				t.Errorf("%+v: %#v", is, is.Authenticated)
			}
		})
	}
}

// TestForged changes an authenticated backup, as whoever has its public key and its content can.
func TestForged(t *testing.T) {
	mine := authenticator(t, goldenKey, scope)
	file := writeOf(t, backup.Seal{Unencrypted: true, Authenticator: &mine})
	forger := authenticator(t, identity(t).String(), scope)
	for name, change := range map[string]func(map[string][]byte){
		"another manifest": func(all map[string][]byte) {
			other := writeOf(t, backup.Seal{Unencrypted: true, Authenticator: &forger}) // with another snapshot
			for entry, data := range entriesOf(t, other) {
				if entry != "authentication.json" {
					all[entry] = data
				}
			}
		},
		"another sum": func(all map[string][]byte) {
			data := all["authentication.json"]
			all["authentication.json"] = append(slices.Clone(data[:len(data)-6]), []byte("00\"}\n")...)
		},
	} {
		entries := entriesOf(t, file)
		change(entries)
		_, err := originOf(tarOf(t, namesOf(t, file), entries), []keys.Authenticator{mine})
		if !errors.Is(err, backup.ErrForged) && !errors.As(err, new(*backup.DamagedError)) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "another manifest" && !errors.Is(err, backup.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Taken away, the authentication is missing; nothing says that it was never there.
	names := slices.DeleteFunc(namesOf(t, file), func(name string) bool { return name == "authentication.json" })
	if is, err := originOf(tarOf(t, names, entriesOf(t, file)), []keys.Authenticator{mine}); err != nil || is.Authentic() {
		t.Errorf("without its authentication: %+v, %v", is, err)
	}
}

func namesOf(t *testing.T, file []byte) (names []string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(file))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
	}
}

func entriesOf(t *testing.T, file []byte) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for name, span := range spans(t, file) {
		all[name] = file[span[0]:span[1]]
	}
	return all
}

func tarOf(t *testing.T, names []string, entries map[string][]byte) []byte {
	t.Helper()
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	for _, name := range names {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(entries[name])), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(entries[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// TestEarlierFormats reads what earlier releases wrote.
func TestEarlierFormats(t *testing.T) {
	identities, err := keys.ParseIdentities([]byte(goldenKey))
	if err != nil {
		t.Fatal(err)
	}
	word, err := backup.PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]backup.Proof{
		"plain": backup.ByNothing, "keys": backup.ByNothing, "passphrase": backup.ByThePassphrase,
	} {
		data, err := os.ReadFile(filepath.Join("testdata", "format1-"+name+".slipway"))
		if err != nil {
			t.Fatal(err)
		}
		c, db, err := read(data, append(slices.Clone(identities), word)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Header.Format != 1 || c.Header.Cluster != "k8s" || len(c.Objects) != 2 || len(db) != 1056 ||
			c.Origin.Authenticated != want {
			t.Errorf("%s: %+v, %d bytes", name, c, len(db))
		}
	}
}
