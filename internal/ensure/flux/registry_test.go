package flux

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/platform"
)

// The credentials of a registry are those that it takes, read as every program reads them: from a config.json.
func TestRegistryTakesTheCredentials(t *testing.T) {
	const user, token = "reader", "a-token"
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != token {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED"}]}`, http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	cfg := config.Defaults()
	cfg.GitURL, cfg.OCITag = "oci://"+strings.TrimPrefix(server.URL, "http://")+"/fleet", "v1.2.0"
	tag, err := name.NewTag(strings.TrimPrefix(cfg.GitURL, "oci://") + ":" + cfg.OCITag)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, empty.Image, remote.WithAuth(&authn.Basic{Username: user, Password: token})); err != nil {
		t.Fatal(err)
	}
	for given, opens := range map[string]bool{token: true, "another-token": false} {
		data, err := Credentials(cfg, platform.GitAccess{User: user, Token: platform.NewSecret(given)})
		if err != nil {
			t.Fatal(err)
		}
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(data[".dockerconfigjson"]), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("DOCKER_CONFIG", folder)
		if _, err := remote.Head(tag, remote.WithAuthFromKeychain(authn.DefaultKeychain)); (err == nil) != opens {
			t.Errorf("with %s: %v", given, err)
		}
	}
}
