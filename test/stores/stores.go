// Package stores starts a store for the state of a cluster, of each kind in turn.
package stores

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// Variable chooses the kind of store: one of Kinds.
const Variable = "TEST_STORE"

// Kinds are the kinds of stores in which a state can be, and none.
func Kinds() []string { return []string{"none", "file", "s3", "k8s"} }

// OfDay is the kind of store of a day, numbered as by Today, unless the Variable chooses one.
func OfDay(t testing.TB, day int) string {
	t.Helper()
	kinds, chosen := Kinds(), os.Getenv(Variable)
	if chosen == "" {
		return kinds[day%len(kinds)]
	}
	if !slices.Contains(kinds, chosen) {
		t.Fatalf("%s=%s is none of %s", Variable, chosen, strings.Join(kinds, ", "))
	}
	return chosen
}

// Today is the number of the day.
func Today() int {
	const secondsADay = 24 * 60 * 60
	return int(time.Now().Unix() / secondsADay)
}

// Environment starts a store of a kind, which ends with the test, and returns the variables by which the command has
// its state there.
func Environment(t testing.TB, kind string) []string {
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
