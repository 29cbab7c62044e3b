package backup_test

import (
	"archive/tar"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"filippo.io/age"
	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
)

// contents are a small cluster's.
func contents() backup.Contents {
	object := func(apiVersion, kind, name string, fields map[string]any) unstructured.Unstructured {
		o := unstructured.Unstructured{Object: map[string]any{}}
		maps.Copy(o.Object, fields)
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		o.SetNamespace("default")
		o.SetName(name)
		return o
	}
	return backup.Contents{
		Header: backup.Header{
			Format: backup.Format, Cluster: "k8s", UID: "7a3b", Taken: time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
			Slipway:  "v1.2.3",
			Versions: map[string]string{"TALOS_VERSION": "v1.12.2"},
			Etcd: backup.Etcd{Revision: 4711, Members: []backup.EtcdMember{{ID: "8e9e05c52164694d",
				Name: "k8s-control-plane-x"}}, From: "127.0.0.9"},
		},
		Config: []byte("clusterName: k8s\n"),
		Files: []backup.File{{Name: "bootstrap/cilium-values.yaml", Data: []byte("a: 1\n")},
			{Name: "manifests/cluster.yaml", Data: []byte("b: 2\n")}},
		Releases: []backup.Release{{Name: "cilium", Namespace: "kube-system", Chart: "cilium", Version: "1.18.6",
			Repository: "r", Values: map[string]any{"a": "b"}}},
		Objects: []unstructured.Unstructured{
			object("cluster.x-k8s.io/v1beta1", "Cluster", "k8s",
				map[string]any{"status": map[string]any{"observedGeneration": int64(3)}}),
			object("cluster.x-k8s.io/v1beta1", "Machine", "k8s", nil),
		},
		Secrets: []unstructured.Unstructured{object("v1", "Secret", "k8s-talos",
			map[string]any{"data": map[string]any{"bundle": "c2VjcmV0"}})},
		Inventory: backup.Inventory{Resources: []backup.Resource{{Kind: "server", ID: 42, Name: "k8s-control-plane-x",
			Addresses: []string{"127.0.0.9"}, Labels: map[string]string{"a": "b"}}}},
	}
}

// snapshot is as long as a database of n bytes with the checksum that etcd's server puts behind it.
func snapshot(t *testing.T, n int) []byte {
	t.Helper()
	data := make([]byte, n, n+sha256.Size)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func write(t *testing.T, seal backup.Seal, snapshot []byte) []byte {
	t.Helper()
	var file bytes.Buffer
	if _, err := backup.Write(&file, seal, contents(), bytes.NewReader(snapshot)); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func read(file []byte, identities ...age.Identity) (*backup.Contents, []byte, error) {
	a, err := backup.Open(bytes.NewReader(file), identities...)
	if err != nil {
		return nil, nil, err
	}
	var db bytes.Buffer
	c, err := a.Read(&db)
	return c, db.Bytes(), err
}

// TestRoundTrip wants back what went in, for every kind of key.
func TestRoundTrip(t *testing.T) {
	x := identity(t)
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	passphrase, err := backup.PassphraseSeal("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	byPassphrase, err := backup.PassphraseIdentity("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	sshRecipient, sshFile := sshKey(t)
	bySSH, err := keys.ParseIdentities(sshFile)
	if err != nil {
		t.Fatal(err)
	}
	recipients := func(text string) backup.Seal {
		r, err := keys.ParseRecipients(text)
		if err != nil {
			t.Fatal(err)
		}
		return backup.Seal{Recipients: r}
	}
	both := recipients(x.Recipient().String() + ", " + sshRecipient)
	for name, tt := range map[string]struct {
		seal backup.Seal
		with []age.Identity
	}{
		"age key":                {recipients(x.Recipient().String()), []age.Identity{x}},
		"hybrid key":             {recipients(hybrid.Recipient().String()), []age.Identity{hybrid}},
		"one of two":             {both, []age.Identity{x}},
		"the other, an SSH key":  {both, bySSH},
		"passphrase":             {passphrase, []age.Identity{byPassphrase}},
		"unencrypted":            {backup.Seal{Unencrypted: true}, nil},
		"unencrypted with a key": {backup.Seal{Unencrypted: true}, []age.Identity{x}},
	} {
		t.Run(name, func(t *testing.T) {
			db := snapshot(t, 20<<20) // more than two parts
			c, got, err := read(write(t, tt.seal, db), tt.with...)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, db) {
				t.Error("the snapshot is another")
			}
			want := contents()
			want.Snapshot, want.Origin = c.Snapshot, c.Origin
			if !reflect.DeepEqual(*c, want) {
				t.Errorf("got %+v\nwant %+v", *c, want)
			}
			if c.Snapshot.Size != int64(len(db)) || c.Snapshot.Parts != 3 {
				t.Errorf("snapshot %+v", c.Snapshot)
			}
		})
	}
}

func sshKey(t *testing.T) (recipient string, file []byte) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))), pem.EncodeToMemory(block)
}

// TestOpenByHand opens a backup with age and tar alone, as the documentation says.
func TestOpenByHand(t *testing.T) {
	command, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("there is no tar here")
	}
	key, db := identity(t), snapshot(t, 9<<20)
	plain, err := age.Decrypt(bytes.NewReader(write(t, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, db)),
		key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	untar := exec.Command(command, "xv")
	untar.Dir, untar.Stdin = dir, plain
	out, err := untar.CombinedOutput()
	if err != nil {
		t.Fatalf("tar xv: %v: %s", err, out)
	}
	listed := strings.Fields(string(out))
	if listed[0] != "header.json" || listed[len(listed)-1] != "manifest.json" {
		t.Errorf("in the tar: %s", listed)
	}
	parts, err := filepath.Glob(filepath.Join(dir, "etcd", "snapshot.db.*"))
	if err != nil {
		t.Fatal(err)
	}
	var joined []byte
	for _, part := range parts { // in the order of a shell's *
		data, err := os.ReadFile(part)
		if err != nil {
			t.Fatal(err)
		}
		joined = append(joined, data...)
	}
	if !bytes.Equal(joined, db) {
		t.Error("the parts of the snapshot do not make the snapshot")
	}
	if _, err := os.Stat(filepath.Join(dir, "secrets", "default", "k8s-talos.yaml")); err != nil {
		t.Error(err)
	}
}

// TestFlippedBits flips one bit in every stretch of 29 bytes of an encrypted file, and in every byte of every entry's
// content of an unencrypted one.
func TestFlippedBits(t *testing.T) {
	key := identity(t)
	sealed := write(t, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, snapshot(t, 4096))
	for at := 0; at < len(sealed); at += 29 {
		broken := slices.Clone(sealed)
		broken[at] ^= 1 << (at % 8)
		if _, _, err := read(broken, key); err == nil {
			t.Fatalf("bit %d of byte %d of %d flipped: taken", at%8, at, len(sealed))
		}
	}
	open := write(t, backup.Seal{Unencrypted: true}, snapshot(t, 4096))
	for name, span := range spans(t, open) {
		for at := span[0]; at < span[1]; at++ {
			broken := slices.Clone(open)
			broken[at] ^= 1 << (at % 8)
			_, _, err := read(broken)
			var damage *backup.DamagedError
			if !errors.As(err, &damage) && !errors.Is(err, backup.ErrNewer) {
				t.Fatalf("%s: bit %d of byte %d flipped: %v", name, at%8, at-span[0], err)
			}
		}
	}
}

// spans are where the contents of a tar's entries lie.
func spans(t *testing.T, file []byte) map[string][2]int {
	t.Helper()
	src := bytes.NewReader(file)
	r := tar.NewReader(src)
	found := map[string][2]int{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		at := len(file) - src.Len()
		found[h.Name] = [2]int{at, at + int(h.Size)}
	}
}

// TestCutOff cuts a file at every length.
func TestCutOff(t *testing.T) {
	key := identity(t)
	for name, tt := range map[string]struct {
		seal backup.Seal
		with []age.Identity
		step int
		need int // of its end: a tar's own padding says nothing
	}{
		"encrypted":   {backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, []age.Identity{key}, 997, 0},
		"unencrypted": {backup.Seal{Unencrypted: true}, nil, 997, 2048},
	} {
		file := write(t, tt.seal, snapshot(t, 128<<10))
		for n := 0; n < len(file)-tt.need; n += tt.step {
			if _, _, err := read(file[:n], tt.with...); err == nil {
				t.Fatalf("%s: the first %d of %d bytes are taken for the whole", name, n, len(file))
			}
		}
		if _, _, err := read(file[:len(file)-1-tt.need], tt.with...); err == nil ||
			!strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: nearly whole: %v", name, err)
		}
	}
	// Nor is it taken with something behind its end.
	file := write(t, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, snapshot(t, 4096))
	if _, _, err := read(append(file, 0), key); err == nil {
		t.Error("one byte too many: taken")
	}
}

// TestWrongKey wants every wrong key refused, with an error that says so.
func TestWrongKey(t *testing.T) {
	key, other := identity(t), identity(t)
	file := write(t, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, snapshot(t, 4096))
	seal, err := backup.PassphraseSeal("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	byPassphrase := write(t, seal, snapshot(t, 4096))
	wrong, err := backup.PassphraseIdentity("wrong horse")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		file []byte
		with []age.Identity
		want string
	}{
		"another key":               {file, []age.Identity{other}, "sealed for 1 keys (X25519)"},
		"no key":                    {file, nil, "no key or passphrase"},
		"a passphrase":              {file, []age.Identity{wrong}, "sealed for 1 keys"},
		"another passphrase":        {byPassphrase, []age.Identity{wrong}, "sealed with a passphrase"},
		"a key where a word is due": {byPassphrase, []age.Identity{key}, "sealed with a passphrase"},
	} {
		if _, _, err := read(tt.file, tt.with...); !errors.Is(err, backup.ErrLocked) ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := read([]byte("hello"), key); err == nil || !strings.Contains(err.Error(), "neither") {
		t.Errorf("another file: %v", err)
	}
}

// TestNewerFormat refuses what this version cannot restore before it reads further.
func TestNewerFormat(t *testing.T) {
	header, err := json.Marshal(map[string]any{"format": backup.Format + 1, "slipway": "v9.0.0", "shape": "unheard of"})
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w := tar.NewWriter(&file)
	if err := w.WriteHeader(&tar.Header{Name: "header.json", Size: int64(len(header)), Mode: 0o600,
		Format: tar.FormatUSTAR}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(header); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	_, _, err = read(file.Bytes())
	if !errors.Is(err, backup.ErrNewer) || !strings.Contains(err.Error(), "v9.0.0") {
		t.Errorf("got %v", err)
	}
}

// TestSnapshotNotWhole refuses to write a snapshot whose stream broke off, or whose content is another than its server
// sent.
func TestSnapshotNotWhole(t *testing.T) {
	good := snapshot(t, 10<<20)
	flipped := slices.Clone(good)
	flipped[100] ^= 1
	seal := backup.Seal{Unencrypted: true}
	for name, src := range map[string]io.Reader{
		"nothing":         bytes.NewReader(nil),
		"cut off":         bytes.NewReader(good[:len(good)-512]),
		"no checksum":     bytes.NewReader(good[:len(good)-sha256.Size]),
		"flipped":         bytes.NewReader(flipped),
		"stream breaks":   io.MultiReader(bytes.NewReader(good[:9<<20]), iotest.ErrReader(errors.New("connection reset"))),
		"checksum's half": bytes.NewReader(good[:len(good)-16]),
	} {
		var file bytes.Buffer
		if _, err := backup.Write(&file, seal, contents(), src); err == nil ||
			!strings.Contains(err.Error(), "etcd snapshot") {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := read(file.Bytes()); err == nil {
			t.Errorf("%s: what was written so far is taken for a backup", name)
		}
	}
	// In pieces of any size it is the same.
	if _, err := backup.Write(io.Discard, seal, contents(),
		iotest.OneByteReader(bytes.NewReader(snapshot(t, 4096)))); err != nil {
		t.Errorf("byte by byte: %v", err)
	}
}

// TestUnreadable tells a disk or a connection that fails from a damaged backup.
func TestUnreadable(t *testing.T) {
	key := identity(t)
	file := write(t, backup.Seal{Recipients: []age.Recipient{key.Recipient()}}, snapshot(t, 1<<20))
	reset := errors.New("connection reset")
	a, err := backup.Open(io.MultiReader(bytes.NewReader(file[:len(file)/2]), iotest.ErrReader(reset)), key)
	if err == nil {
		_, err = a.Read(io.Discard)
	}
	var damage *backup.DamagedError
	if !errors.Is(err, reset) || errors.As(err, &damage) {
		t.Errorf("got %v", err)
	}
}

// TestKeysThatAreNone never repeats a key in an error.
func TestKeysThatAreNone(t *testing.T) {
	secret := identity(t).String()
	for _, text := range []string{secret, "age1" + strings.Repeat("x", 20), "me@example.com", "ssh-ed25519 nothing"} {
		if _, err := keys.ParseRecipients(text); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%.9s…: %v", text, err)
		}
	}
	if r, err := keys.ParseRecipients("\n# nobody\n ,"); err != nil || len(r) != 0 {
		t.Errorf("nobody: %v, %v", r, err)
	}
	for _, seal := range []backup.Seal{{}, {Unencrypted: true, Recipients: []age.Recipient{identity(t).Recipient()}}} {
		if _, err := backup.Write(io.Discard, seal, contents(), bytes.NewReader(snapshot(t, 512))); err == nil {
			t.Errorf("%+v: taken", seal)
		}
	}
}

func TestName(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.FixedZone("", 3600))
	name := backup.Name("k8s-2", at)
	if name != "k8s-2-20260102T140405Z.slipway" {
		t.Error(name)
	}
	cluster, when, ok := backup.ParseName(name)
	if cluster != "k8s-2" || !when.Equal(at) || !ok {
		t.Errorf("%q, %v, %v", cluster, when, ok)
	}
	for _, other := range []string{"k8s.slipway", "k8s-20260102T140405Z.slipway.gz", "-20260102T140405Z.slipway",
		"k8s-20261302T140405Z.slipway", ".k8s-20260102T140405Z.slipway.partial"} {
		if _, _, ok := backup.ParseName(other); ok {
			t.Errorf("%s is taken for a backup", other)
		}
	}
}
