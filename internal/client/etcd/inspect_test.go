package etcd_test

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/etcd/etcdtest"
)

// database makes an etcd database with the namespace kube-system, where it has a uid, and 100 other keys, 10 of them
// deleted again, and returns a snapshot as etcd's server sends it, and its revision.
func database(t *testing.T, uid string) (snapshot []byte, revision int64) {
	t.Helper()
	var out bytes.Buffer
	revision = etcdtest.Snapshot(t, &out, uid, func(store mvcc.KV) {
		for i := range 100 {
			store.Put([]byte("/registry/things/"+strconv.Itoa(i)), []byte("value"), lease.NoLease)
		}
		for i := range 10 {
			store.DeleteRange([]byte("/registry/things/"+strconv.Itoa(i)), nil)
		}
	})
	return out.Bytes(), revision
}

func inspect(t *testing.T, snapshot []byte) (etcd.Content, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "snapshot.db")
	if err := os.WriteFile(file, snapshot, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := etcd.Inspect(file, filepath.Join(dir, "scratch"))
	after, readErr := os.ReadFile(file)
	if readErr != nil || !bytes.Equal(after, snapshot) {
		t.Errorf("the snapshot was changed: %v", readErr)
	}
	return c, err
}

func TestInspect(t *testing.T) {
	data, revision := database(t, "7a3b")
	c, err := inspect(t, data)
	if err != nil {
		t.Fatal(err)
	}
	if c.UID != "7a3b" || c.Keys != 91 || c.Revision != revision || c.Hash == 0 || c.Size != int64(len(data)-sha256.Size) {
		t.Errorf("got %+v at revision %d", c, revision)
	}
	data, _ = database(t, "")
	if c, err := inspect(t, data); err != nil || c.UID != "" || c.Keys != 90 {
		t.Errorf("of no Kubernetes: %+v, %v", c, err)
	}
}

// TestDamaged wants an error, and no panic, of what does not match its checksum or is no database.
func TestDamaged(t *testing.T) {
	good, _ := database(t, "")
	none := make([]byte, 8192)
	sum := sha256.Sum256(none)
	for name, data := range map[string][]byte{
		"empty":       {},
		"no checksum": good[:len(good)-sha256.Size],
		"flipped":     flipped(good, len(good)/2),
		"cut":         good[:len(good)/2],
		"no database": append(none, sum[:]...),
	} {
		if c, err := inspect(t, data); err == nil {
			t.Errorf("%s: taken: %+v", name, c)
		}
	}
}

func flipped(data []byte, at int) []byte {
	d := bytes.Clone(data)
	d[at] ^= 1
	return d
}
