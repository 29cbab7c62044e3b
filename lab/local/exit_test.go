package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func TestAllowed(t *testing.T) {
	for target, want := range map[string]bool{
		"api.hetzner.cloud:443": true, "127.79.4.2:6443": true, "k8s.example.com:6443": true, "[2001:db8::1]:50000": true,
		"api.hetzner.cloud:80": false, "example.com:443": false, "127.0.0.1:22": false, "api.hetzner.cloud": false,
		"": false, "api.hetzner.cloud:443.example.com:443": false,
	} {
		if err := allowed(target); (err == nil) != want {
			t.Errorf("%q: %v, want allowed %v", target, err, want)
		}
	}
}

// upstream is an HTTP proxy that answers CONNECT itself.
func upstream(t *testing.T, answer string) (*url.URL, <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	seen := make(chan string, 9)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			request, err := http.ReadRequest(bufio.NewReader(conn))
			if err == nil {
				seen <- request.Method + " " + request.Host + " " + request.Header.Get("Proxy-Authorization")
				_, _ = io.WriteString(conn, answer)
				_, _ = io.Copy(conn, conn)
			}
			conn.Close()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String()}, seen
}

func TestThroughAProxy(t *testing.T) {
	proxy, seen := upstream(t, "HTTP/1.1 200 OK\r\n\r\n")
	proxy.User = url.UserPassword("me", "swordfish")
	dial := newDialer(func(string) (*url.URL, error) { return proxy, nil })
	conn, err := dial(t.Context(), hetznerAPI)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, ok := conn.(*net.TCPConn); !ok {
		t.Errorf("a %T cannot be handed on as a socket", conn)
	}
	fmt.Fprintln(conn, "echo")
	if got, err := bufio.NewReader(conn).ReadString('\n'); got != "echo\n" {
		t.Errorf("through the tunnel came %q, %v", got, err)
	}
	want := "CONNECT api.hetzner.cloud:443 Basic " + base64.StdEncoding.EncodeToString([]byte("me:swordfish"))
	if got := <-seen; got != want {
		t.Errorf("the proxy saw %q, want %q", got, want)
	}

	for answer, says := range map[string]string{
		"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nclosed": "403 Forbidden: closed",
		"HTTP/1.1 200 OK\r\n\r\nhello":                              "before the client did",
		"":                                                          "EOF",
	} {
		proxy, _ := upstream(t, answer)
		proxy.User = url.UserPassword("me", "swordfish")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if answer == "" {
			ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
		}
		_, err := newDialer(func(string) (*url.URL, error) { return proxy, nil })(ctx, hetznerAPI)
		cancel()
		if answer == "" {
			says = "through the proxy"
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("a proxy that answers %q: %v", answer, err)
		}
	}
	for _, bad := range []func(string) (*url.URL, error){
		func(string) (*url.URL, error) { return url.Parse("https://me:swordfish@127.0.0.1") },
		func(string) (*url.URL, error) {
			return nil, errors.New(`invalid proxy address "me:swordfish@": no host`)
		},
	} {
		if _, err := newDialer(bad)(t.Context(), hetznerAPI); err == nil || strings.Contains(err.Error(), "swordfish") {
			t.Errorf("a proxy that cannot be used: %v", err)
		}
	}
}

// What is not allowed reaches neither its address nor the proxy.
func TestRefusedBeforeItIsDialled(t *testing.T) {
	proxy, seen := upstream(t, "HTTP/1.1 200 OK\r\n\r\n")
	_, err := newDialer(func(string) (*url.URL, error) { return proxy, nil })(t.Context(), "example.com:443")
	if err == nil || len(seen) > 0 {
		t.Errorf("%v; the proxy saw %q", err, <-seen)
	}
}

func TestProxyOfThePods(t *testing.T) {
	asked := make(chan string, 9)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "reached")
	}))
	defer server.Close()
	dial := func(ctx context.Context, target string) (net.Conn, error) {
		asked <- target
		if target != hetznerAPI {
			return nil, errors.New("closed to " + target)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	hosts := map[string]bool{"203.0.113.7": true, "2001:db8::7": true, "k8s.example.com": true}
	var log bytes.Buffer
	p := httptest.NewServer(&proxy{dial: dial, log: slog.New(slog.NewTextHandler(&log, nil)), refusals: map[string]string{},
		hosts: func(context.Context) (map[string]bool, error) { return hosts, nil }})
	defer p.Close()
	through, err := url.Parse(p.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := server.Client()
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(through)
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com" // of the server's certificate
	reply, err := client.Get("https://" + hetznerAPI)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(reply.Body)
	reply.Body.Close()
	if string(body) != "reached" {
		t.Errorf("got %q", body)
	}
	if first := <-asked; first != hetznerAPI {
		t.Errorf("dialled %s", first)
	}
	for target, want := range map[string]string{
		"example.com:443": "Forbidden", "203.0.113.8:6443": "Forbidden", "203.0.113.8:50000": "Forbidden",
		"203.0.113.7:22": "Forbidden", "evil.example.com:6443": "Forbidden",
		"203.0.113.7:6443": "Bad Gateway", "[2001:db8:0::7]:50000": "Bad Gateway", "k8s.example.com:6443": "Bad Gateway",
	} {
		if _, err := client.Get("https://" + target); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", target, err, want)
		}
		if reached := len(asked) > 0; reached != (want == "Bad Gateway") {
			t.Errorf("%s was dialled: %v", target, reached)
		}
		for len(asked) > 0 {
			<-asked
		}
		if !strings.Contains(log.String(), "target="+target) && !strings.Contains(log.String(), `target="`+target) {
			t.Errorf("the log does not name %s: %s", target, &log)
		}
	}
	if reply, err := http.Get(p.URL); err != nil || reply.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("a GET: %v, %v", reply, err)
	}
}

// The addresses of the clusters that are managed are those that their objects have at that moment.
func TestHostsOfClusters(t *testing.T) {
	answers := map[string]string{
		"/api": `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","groups":[{"name":"cluster.x-k8s.io",
			"versions":[{"groupVersion":"cluster.x-k8s.io/v1beta1","version":"v1beta1"}],
			"preferredVersion":{"groupVersion":"cluster.x-k8s.io/v1beta1","version":"v1beta1"}}]}`,
		"/apis/cluster.x-k8s.io/v1beta1/clusters": `{"kind":"ClusterList","apiVersion":"cluster.x-k8s.io/v1beta1","items":[
			{"kind":"Cluster","metadata":{"name":"a"},"spec":{"controlPlaneEndpoint":{"host":"203.0.113.7","port":6443}}},
			{"kind":"Cluster","metadata":{"name":"new"},"spec":{}}]}`,
		"/apis/cluster.x-k8s.io/v1beta1/machines": `{"kind":"MachineList","apiVersion":"cluster.x-k8s.io/v1beta1","items":[
			{"kind":"Machine","metadata":{"name":"a"},"status":{"addresses":[{"type":"ExternalIP","address":"2001:DB8::7"},
				{"type":"Hostname","address":"evil.example.com"}]}}]}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answers[r.URL.Path])
	}))
	defer server.Close()
	for _, want := range []map[string]bool{{"203.0.113.7": true, "2001:db8::7": true}, {}} {
		hosts := map[string]bool{}
		if err := addHosts(t.Context(), &rest.Config{Host: server.URL}, hosts); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(hosts, want) {
			t.Errorf("got %v, want %v", hosts, want)
		}
		answers["/apis"] = `{"kind":"APIGroupList","groups":[]}` // before the providers are installed
	}
}
