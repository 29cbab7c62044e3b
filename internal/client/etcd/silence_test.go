package etcd_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/client/etcd/etcdtest"
)

// A snapshot whose Deployments were taken out is one that etcd restores, without them and with all else.
func TestSilence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "snapshot.db")
	const others = 450 // Pods: more than are read at once
	var out bytes.Buffer
	revision := etcdtest.Snapshot(t, &out, "7a3b", func(store mvcc.KV) {
		etcdtest.PutDeployment(t, store, "caph", map[string]string{"cluster.x-k8s.io/provider": "infrastructure-hetzner"}, 1)
		etcdtest.PutDeployment(t, store, "capi", map[string]string{"cluster.x-k8s.io/provider": "cluster-api"}, 2)
		etcdtest.PutDeployment(t, store, "theirs", map[string]string{"cluster.x-k8s.io/other": ""}, others)
	})
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := inspect(t, out.Bytes())
	if err != nil || before.Keys != 1+3+4+2+others {
		t.Fatalf("%+v, %v", before, err)
	}
	silenced, err := etcd.Silence(file, "cluster.x-k8s.io/provider")
	if err != nil || !slices.Equal(silenced, []string{"space/caph", "space/capi"}) {
		t.Fatalf("%v, %v", silenced, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// 2 Deployments, 2 ReplicaSets and 3 Pods are gone, each in a revision of its own.
	after, err := inspect(t, data)
	if err != nil || after.UID != "7a3b" || after.Keys != before.Keys-7 || after.Revision != revision+7 {
		t.Errorf("%+v, %v; it was %+v", after, err, before)
	}
	if again, err := etcd.Silence(file, "cluster.x-k8s.io/provider"); err != nil || len(again) > 0 {
		t.Errorf("a second time: %v, %v", again, err)
	}
}

func TestSilenceRefusesWhatIsNoSnapshot(t *testing.T) {
	good, _ := database(t, "")
	for name, data := range map[string][]byte{"without its checksum": good[:len(good)-32], "empty": {},
		"no database": make([]byte, 8192+32)} {
		file := filepath.Join(t.TempDir(), "snapshot.db")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if silenced, err := etcd.Silence(file, "label"); err == nil {
			t.Errorf("%s: %v", name, silenced)
		}
	}
}
