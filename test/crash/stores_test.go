package crash

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/slipway-k8s/slipway/internal/kube/kubetest"
)

// storeVariable chooses the kind of store of the sample: one of stores.
const storeVariable = "CRASH_STORE"

// stores are the kinds of stores in which a state can be, and none.
var stores = []string{"none", "file", "s3", "k8s"}

// storeOf is the kind of store of a day's sample.
func storeOf(t *testing.T, day int) string {
	t.Helper()
	chosen := os.Getenv(storeVariable)
	if chosen == "" {
		return stores[day%len(stores)]
	}
	if !slices.Contains(stores, chosen) {
		t.Fatalf("%s=%s is none of %s", storeVariable, chosen, strings.Join(stores, ", "))
	}
	return chosen
}

// storeEnvironment starts a store of a kind, and returns the variables by which the command has its state there.
func storeEnvironment(t *testing.T, kind string) []string {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	identity := "STATE_IDENTITY=" + key.String()
	switch kind {
	case "file":
		return []string{"STATE=file://" + t.TempDir(), identity}
	case "s3":
		memory := s3mem.New()
		if err := memory.CreateBucket("states"); err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(gofakes3.New(memory, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
		t.Cleanup(server.Close)
		return []string{"STATE=s3://states/clusters", "STATE_S3_ENDPOINT=" + server.URL, "STATE_S3_REGION=nbg1",
			"AWS_ACCESS_KEY_ID=a", "AWS_SECRET_ACCESS_KEY=b", identity}
	case "k8s":
		server := kubetest.New("the cluster with the state")
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(kubeconfig, server.Kubeconfig(), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"STATE=k8s://default", "STATE_KUBECONFIG=" + kubeconfig, identity}
	}
	return nil
}
