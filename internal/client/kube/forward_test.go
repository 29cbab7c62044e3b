package kube_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/kube/kubetest"
)

// through is a client whose requests go to a port of a Pod.
func through(t *testing.T, s *kubetest.Server) *http.Client {
	t.Helper()
	cluster, err := kube.Connect(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return cluster.DialPod(ctx, "git", "pod-1", 3000)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// A request to a port of a Pod arrives with its credentials, and its answer whole.
func TestDialPod(t *testing.T) {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s:%s:%d", user, password, len(body))
	}))
	defer program.Close()
	var asked string
	s := kubetest.New("uid")
	defer s.Close()
	s.Forward = func(namespace, pod, port string) string {
		asked = namespace + "/" + pod + ":" + port
		return program.Listener.Addr().String()
	}
	client := through(t, s)
	for range 3 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pod/x",
			strings.NewReader(strings.Repeat("x", 100_000)))
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth("me", "secret")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(body) != "me:secret:100000" || asked != "git/pod-1:3000" {
			t.Errorf("%q, %v; asked for %s", body, err, asked)
		}
	}
}

// What keeps a port from being forwarded is in the error, and nothing waits for longer than its context.
func TestDialPodErrors(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	s := kubetest.New("uid")
	defer s.Close()
	s.Forward = func(string, string, string) string { return nobody.Addr().String() }
	if _, err := through(t, s).Get("http://pod/"); err == nil || !strings.Contains(err.Error(), "no process listens") ||
		!strings.Contains(err.Error(), "forward port 3000 of Pod git/pod-1") {
		t.Errorf("nobody listens: %v", err)
	}

	refusing := kubetest.New("uid")
	defer refusing.Close()
	refusing.Fail = func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/portforward") {
			return http.StatusForbidden, "not you"
		}
		return 0, ""
	}
	if _, err := through(t, refusing).Get("http://pod/"); err == nil || !strings.Contains(err.Error(), "not you") {
		t.Errorf("refused: %v", err)
	}

	silent := kubetest.New("uid")
	ended := make(chan struct{})
	defer silent.Close()
	defer close(ended)
	silent.Fail = func(r *http.Request) (int, string) {
		if strings.HasSuffix(r.URL.Path, "/portforward") {
			<-ended
		}
		return 0, ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	cluster, err := kube.Connect(silent.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.DialPod(ctx, "git", "pod-1", 3000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
}
