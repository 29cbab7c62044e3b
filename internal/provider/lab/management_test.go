package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
)

// The daemon sees the proxies, in whichever spelling, and no token. That of a rehearsal has the lab's proxy alone.
func TestEnvironmentOfALocalManagementCluster(t *testing.T) {
	m := &LocalManagement{Dir: t.TempDir(), Environment: map[string]string{"PATH": "/bin", "HCLOUD_TOKEN": secret,
		"https_proxy": "http://proxy.example.com:3128", "NO_PROXY": "10.0.0.0/8", "no_proxy": "other"}}
	client := NewLocalClient(m.Dir)
	has := func(words ...string) {
		t.Helper()
		got := m.Daemon(client).Environment
		slices.Sort(got)
		if !slices.Equal(got, words) {
			t.Errorf("environment %q, want %q", got, words)
		}
	}
	has("HTTPS_PROXY=http://proxy.example.com:3128", "NO_PROXY=10.0.0.0/8", "PATH=/bin")
	m.Rehearsal, m.RehearsalInfo = &Lab{}, Info{Proxy: "http://127.64.0.1:8443"}
	has("HTTPS_PROXY=http://127.64.0.1:8443", "PATH=/bin")

	_, err := m.Daemon(client).Answering(t.Context())
	if err == nil || !strings.Contains(err.Error(), "the local management cluster is not running") {
		t.Errorf("without a daemon: %v", err)
	}
}

// CAPH and cert-manager come out of their images at the configured versions.
func TestImagesOfALocalManagementCluster(t *testing.T) {
	c := config.Defaults()
	c.CertManagerVersion = "v1.16.1"
	var got []string
	for _, i := range managementImages(c) {
		if !strings.HasPrefix(i.From, i.Image+":") || i.Fidelity != "real" {
			t.Errorf("%+v", i)
		}
		got = append(got, i.From)
	}
	want := []string{"ghcr.io/syself/caph:" + c.CAPHVersion, "quay.io/jetstack/cert-manager-controller:v1.16.1",
		"quay.io/jetstack/cert-manager-webhook:v1.16.1", "quay.io/jetstack/cert-manager-cainjector:v1.16.1"}
	if !slices.Equal(got, want) {
		t.Errorf("images %q, want %q", got, want)
	}
}
