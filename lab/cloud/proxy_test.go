package cloud

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/lab/pki"
)

func TestProxyPlaysTheRealHost(t *testing.T) {
	w := newHarness(t)
	ca, err := pki.NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := w.cloud.Proxy(ca)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
	defer transport.CloseIdleConnections()
	client := hcloud.NewClient( // at its default endpoint
		hcloud.WithToken(testToken),
		hcloud.WithHTTPClient(&http.Client{Transport: &conforming{t: t, api: w.config.API, next: transport}}),
	)
	locations, err := client.Location.All(t.Context())
	if err != nil || len(locations) != 6 {
		t.Fatalf("through the proxy there are %d locations, %v", len(locations), err)
	}
	must[hcloud.PlacementGroupCreateResult](t)(client.PlacementGroup.Create(t.Context(),
		hcloud.PlacementGroupCreateOpts{Name: "one", Type: hcloud.PlacementGroupTypeSpread}))
	if found := must[*hcloud.PlacementGroup](t)(w.PlacementGroup.GetByName(t.Context(), "one")); found == nil {
		t.Error("what was made through the proxy is not there without it")
	}
	for _, fault := range []FaultKind{FaultLostReply, FaultReset} {
		w.fault(Fault{Kind: fault, Method: http.MethodPost, Times: 1})
		if _, _, err := client.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{
			Name: string(fault), Type: hcloud.PlacementGroupTypeSpread,
		}); err == nil {
			t.Errorf("a %s through the proxy goes unnoticed", fault)
		}
	}

	for target, want := range map[string]string{"https://example.com/": "Forbidden", "http://example.com/": "",
		"https://api.hetzner.cloud:8443/": "Forbidden"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := transport.RoundTrip(request)
		switch {
		case err == nil && reply.StatusCode != http.StatusMethodNotAllowed:
			t.Errorf("the proxy takes %s: %d", target, reply.StatusCode)
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s is refused with %v", target, err)
		}
		if reply != nil {
			reply.Body.Close()
		}
	}
}

func TestProxyNeedsTrust(t *testing.T) {
	w := newHarness(t)
	ca, err := pki.NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	other, err := pki.NewCA("another")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := w.cloud.Proxy(ca)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	at, _ := url.Parse(server.URL)
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: &tls.Config{RootCAs: other.Pool()}}
	request, _ := http.NewRequestWithContext(context.Background(), http.MethodGet,
		"https://api.hetzner.cloud/v1/locations", nil)
	if _, err := transport.RoundTrip(request); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the lab's CA the error is %v", err)
	}
}

// A name that the hosts file has at a loopback address, as that of a control plane endpoint, is reached.
func TestProxyReachesNamesOfTheHostsFile(t *testing.T) {
	w := newHarness(t)
	ca, err := pki.NewCA("lab")
	if err != nil {
		t.Fatal(err)
	}
	handler, err := w.cloud.Proxy(ca)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	backend := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	defer backend.Close()
	trusted := backend.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.ServerName = "example.com" // the certificate's
	transport := &http.Transport{Proxy: http.ProxyURL(at), TLSClientConfig: trusted}
	defer transport.CloseIdleConnections()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(backend.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost:"+port, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := transport.RoundTrip(request)
	if err != nil || reply.StatusCode != http.StatusTeapot {
		t.Fatalf("https://localhost:%s through the proxy: %v, %v", port, reply, err)
	}
	_ = reply.Body.Close()
}
