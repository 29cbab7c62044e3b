package etcd_test

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slipway-k8s/slipway/internal/client/etcd"
)

// A snapshot that a server of etcd 3.5 sent is read and changed by the library of 3.6: Talos up to 1.12 runs 3.5, and
// backups of it are kept. The file has kube-system, a Deployment of a provider, and one of no provider.
func TestSnapshotOfEtcd35(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot.db")
	unpack(t, filepath.Join("testdata", "etcd-3.5.20.db.gz"), file)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := inspect(t, data)
	if err != nil || c.UID != "7a3b" || c.Keys != 8 || c.Revision != 11 {
		t.Fatalf("%+v, %v", c, err)
	}
	silenced, err := etcd.Silence(file, "cluster.x-k8s.io/provider")
	if err != nil || !slices.Equal(silenced, []string{"space/caph"}) {
		t.Fatalf("%v, %v", silenced, err)
	}
	if data, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	if c, err := inspect(t, data); err != nil || c.UID != "7a3b" || c.Keys != 5 || c.Revision != 14 {
		t.Errorf("without the provider: %+v, %v", c, err)
	}
}

func unpack(t *testing.T, from, to string) {
	t.Helper()
	packed, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
