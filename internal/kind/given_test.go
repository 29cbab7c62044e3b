package kind

import (
	"bytes"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/platform"
)

// The kubeconfig of a Pod's cluster works with a token that is replaced while it is in use, and does not hold it.
func TestPodOpensItsClusterWithTheTokenOfToday(t *testing.T) {
	var shown string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
	}))
	defer s.Close()
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := Pod{Host: at.Hostname(), Port: at.Port(), Folder: t.TempDir()}
	if err := p.Check(); !errors.As(err, new(*usage.Error)) {
		t.Errorf("without a service account: %v", err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(p.Folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("token", []byte("first"))
	write("ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	kubeconfig, err := p.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(kubeconfig, []byte("first")) {
		t.Errorf("the kubeconfig holds the token:\n%s", kubeconfig)
	}
	c, err := clientcmd.Load(kubeconfig)
	if err != nil || len(c.AuthInfos) != 1 || c.AuthInfos["in-cluster"].TokenFile != p.token() ||
		len(c.Clusters["in-cluster"].CertificateAuthorityData) == 0 {
		t.Fatalf("kubeconfig: %v\n%s", err, kubeconfig)
	}
	for _, token := range []string{"first", "second"} {
		write("token", []byte(token))
		cluster, err := kube.Connect(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Ready(t.Context()); err != nil || shown != "Bearer "+token {
			t.Errorf("the server was shown %q, not %q: %v", shown, token, err)
		}
	}
	if (Pod{Folder: p.Folder}).Check() == nil {
		t.Error("a service account without KUBERNETES_SERVICE_HOST is no Pod")
	}
}

// An existing management cluster without a kubeconfig is the one around the Pod; outside of one it cannot be opened.
func TestProviderOfAnExistingManagementCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	cfg := config.Defaults()
	cfg.Management = config.ManagementExisting
	provider := NewProvider(cfg, platform.FilesIn(t.TempDir()), false, nil, nil)
	_, err := provider.Ensure(t.Context(), "k8s-mgmt", quiet)
	if err == nil || !strings.Contains(err.Error(), "MANAGEMENT_KUBECONFIG") || !strings.Contains(err.Error(), "Pod") {
		t.Errorf("outside of a Pod: %v", err)
	}
	if !(platform.Tools{Management: provider}).ManagementGiven() {
		t.Error("it counts as one that Slipway created")
	}
	cfg.Management = config.ManagementKind
	made := NewProvider(cfg, platform.FilesIn(t.TempDir()), false, nil, nil)
	if (platform.Tools{Management: made}).ManagementGiven() {
		t.Error("kind's counts as given")
	}
}
