package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// readyServer answers everything with 200 over TLS, and counts its connections.
func readyServer(t *testing.T) (s *httptest.Server, connections *atomic.Int64) {
	t.Helper()
	connections = &atomic.Int64{}
	s = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, connections
}

func kubeconfigOf(s *httptest.Server, address string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: "%s", certificate-authority-data: %s}}]
users: [{name: test, user: {token: test}}]
`, address, base64.StdEncoding.EncodeToString(ca))
}

// One connection serves all who connect by one kubeconfig, and nothing is left of those that are dropped.
func TestConnectionsAreShared(t *testing.T) {
	s, opened := readyServer(t)
	connections := &Connections{}
	before := runtime.NumGoroutine()
	for i := range 200 {
		cluster, err := connections.Connect(kubeconfigOf(s, s.URL))
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Ready(t.Context()); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if n := opened.Load(); n != 1 {
		t.Errorf("200 times connected: %d connections", n)
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d goroutines more", more)
	}
	another, err := connections.Connect(append(kubeconfigOf(s, s.URL), '\n'))
	if err != nil {
		t.Fatal(err)
	}
	if err := another.Ready(t.Context()); err != nil || opened.Load() != 2 {
		t.Errorf("by another kubeconfig: %v, %d connections", err, opened.Load())
	}
}

// relay forwards connections to its addresses, to each in turn, until those that it has are silenced: then they stay
// open, and nothing comes any more.
type relay struct {
	net.Listener
	mu       sync.Mutex
	silenced []chan struct{}
}

func newRelay(t *testing.T, to ...string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &relay{Listener: l}
	go func() {
		for turn := 0; ; turn++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to[turn%len(to)])
			if err != nil {
				in.Close()
				continue
			}
			t.Cleanup(func() { in.Close(); out.Close() })
			silent := make(chan struct{})
			r.mu.Lock()
			r.silenced = append(r.silenced, silent)
			r.mu.Unlock()
			go forward(out, in, silent)
			go forward(in, out, silent)
		}
	}()
	return r
}

func forward(to io.Writer, from io.Reader, silent chan struct{}) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-silent:
			continue
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (r *relay) silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.silenced {
		close(c)
	}
	r.silenced = nil
}

// A shared connection that is broken, as when the server behind a load balancer vanishes, is replaced in seconds.
func TestDeadConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	s, _ := readyServer(t)
	r := newRelay(t, s.Listener.Addr().String())
	cluster, err := Connect(kubeconfigOf(s, "https://"+r.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.silence()
	ctx, cancel := context.WithTimeout(t.Context(), pingAfter+pingWithin+5*time.Second)
	defer cancel()
	if err := cluster.Ready(ctx); err == nil {
		return // the transport has tried again by itself
	}
	if ctx.Err() != nil {
		t.Fatal("the request on the dead connection waits for longer than it takes to find out that it is dead")
	}
	if err := cluster.Ready(ctx); err != nil {
		t.Errorf("after the connection was found dead: %v", err)
	}
}

// Behind a load balancer one API server may have no etcd while the others do: it keeps the connection and answers its
// pings. The next request after one that it left unanswered, or failed, goes over another connection, while a watch
// stays on the one that it has.
func TestRequestsLeaveAnUnwellAPIServer(t *testing.T) {
	t.Parallel()
	for name, unwell := range map[string]http.HandlerFunc{
		"is silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"fails": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			bad := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/watch" {
					unwell(w, r)
					return
				}
				w.(http.Flusher).Flush()
				<-ended
				fmt.Fprint(w, "still here")
			}))
			bad.EnableHTTP2 = true
			bad.StartTLS()
			t.Cleanup(bad.Close)
			good, opened := readyServer(t)
			r := newRelay(t, bad.Listener.Addr().String(), good.Listener.Addr().String())
			cluster, err := Connect(kubeconfigOf(bad, "https://"+r.Addr().String()))
			if err != nil {
				t.Fatal(err)
			}
			watch, err := cluster.http.Get("https://" + r.Addr().String() + "/watch")
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Body.Close()
			asking, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := cluster.Ready(asking); err == nil {
				t.Fatal("the first connection did not lead to the API server that is unwell")
			}
			for range 3 {
				asking, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := cluster.Ready(asking); err != nil {
					t.Fatalf("after a request that the other API server did not answer well: %v", err)
				}
			}
			if n := opened.Load(); n != 1 {
				t.Errorf("%d connections to the API server that is well, want 1", n)
			}
			close(ended)
			if text, err := io.ReadAll(watch.Body); err != nil || string(text) != "still here" {
				t.Errorf("the watch on the connection that was left: %q, %v", text, err)
			}
		})
	}
}

// TestAPIServerThatStarts asks for a kind that an API server does not offer yet, because it has just started: it is
// asked again. An answer that says to wait for half a minute is returned at once.
func TestAPIServerThatStarts(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]bool{"5": true, "30": false} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			var refused atomic.Int64
			s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.URL.Path == "/api/v1" && (refused.Add(1) == 1 || !want):
					w.Header().Set("Retry-After", after)
					w.WriteHeader(http.StatusServiceUnavailable)
					fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,`+
						`"message":"the request has been made before all known HTTP paths have been installed, please try again"}`)
				case r.URL.Path == "/api":
					fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
				case r.URL.Path == "/api/v1":
					fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"nodes","kind":"Node"}]}`)
				default:
					fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[]}`)
				}
			}))
			t.Cleanup(s.Close)
			cluster, err := Connect(kubeconfigOf(s, s.URL))
			if err != nil {
				t.Fatal(err)
			}
			err = cluster.List(t.Context(), &corev1.NodeList{})
			if (err == nil) != want || !want && !Unwell(err) {
				t.Errorf("asked %d times: %v", refused.Load(), err)
			}
		})
	}
}
