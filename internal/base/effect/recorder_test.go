package effect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

const planted = "plantedPlantedPlanted"

// kept are the lines that a recorder wrote.
type kept struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (k *kept) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.text.Write(p)
}

func (k *kept) read(t *testing.T) []Line {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if strings.Contains(k.text.String(), planted) {
		t.Error("a secret is in the lines")
	}
	lines, err := Read(bytes.NewReader(k.text.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func (k *kept) keys(t *testing.T) []string {
	var keys []string
	for _, l := range k.read(t) {
		keys = append(keys, string(l.Phase)+" "+l.Key())
	}
	return keys
}

// A call is written down before it leaves and after its reply, and what is sent is what would have been sent.
func TestTransport(t *testing.T) {
	lines := &kept{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		if err != nil || r.Method == http.MethodPost && !strings.Contains(string(data), planted) {
			t.Errorf("%s %s came with %q, %v", r.Method, r.URL, data, err)
		}
		if keys := lines.keys(t); r.Method == http.MethodPost && !strings.HasPrefix(keys[len(keys)-1],
			"before hetzner create firewalls/k8s#") {
			t.Errorf("while it is served the lines are %q", keys)
		}
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusLocked)
		}
	}))
	defer server.Close()
	type step struct{}
	client := &http.Client{Transport: New(Options{Lines: lines, Step: func(ctx context.Context) string {
		name, _ := ctx.Value(step{}).(string)
		return name
	}}).Transport(http.DefaultTransport, Hetzner, HetznerCall)}
	do := func(method, path string, body io.Reader) {
		t.Helper()
		request, err := http.NewRequestWithContext(context.WithValue(t.Context(), step{}, "firewall"), method,
			server.URL+path, body)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
	}
	body := `{"name":"k8s","labels":{"a":"` + planted + `"}}`
	do("GET", "/v1/firewalls", nil)
	do("POST", "/v1/firewalls", strings.NewReader(body))
	do("POST", "/v1/firewalls", struct{ io.Reader }{strings.NewReader(body)}) // one that can be read once only
	do("DELETE", "/v1/servers/4711", nil)
	want := []string{
		"before hetzner create firewalls/k8s#1", "applied hetzner create firewalls/k8s#1",
		"before hetzner create firewalls/k8s#2", "applied hetzner create firewalls/k8s#2",
		"before hetzner delete servers/*#1", "failed hetzner delete servers/*#1",
	}
	if got := lines.keys(t); !slices.Equal(got, want) {
		t.Errorf("the lines are\n%s", strings.Join(got, "\n"))
	}
	for i, l := range lines.read(t) {
		if l.Seq != i/2+1 || l.Step != "firewall" || l.Time.IsZero() || (l.Error != "") != (l.Phase == Failed) {
			t.Errorf("line %d is %+v", i, l)
		}
	}
}

type brokenWriter struct{ calls int }

func (b *brokenWriter) Write([]byte) (int, error) {
	b.calls++
	return 0, errors.New("no space left on device")
}

// The run does not stop because it cannot be written down; the operator gets one warning.
func TestRecorderThatCannotWrite(t *testing.T) {
	broken, said, done := &brokenWriter{}, 0, 0
	r := New(Options{Lines: broken, Warn: func(error) { said++ }})
	for range 3 {
		if err := r.Do(t.Context(), File, "write", "kubeconfig", func() error { done++; return nil }); err != nil {
			t.Error(err)
		}
	}
	if done != 3 || said != 1 || broken.calls != 1 {
		t.Errorf("%d calls done, said %d times, written %d times", done, said, broken.calls)
	}
}

func TestNilRecorder(t *testing.T) {
	var r *Recorder
	called := false
	if err := r.Do(t.Context(), File, "write", "x", func() error { called = true; return nil }); err != nil || !called {
		t.Errorf("called: %v, %v", called, err)
	}
	if r.Transport(http.DefaultTransport, Hetzner, HetznerCall) != http.DefaultTransport || r.TalosDial() != nil ||
		r.Disk(flow.LocalDisk{}) != flow.Disk(flow.LocalDisk{}) {
		t.Error("it does something")
	}
	r.Saved()
	r.Close()
}

// A killed run leaves half a line at most, at the end.
func TestRead(t *testing.T) {
	whole, err := json.Marshal(Line{Seq: 1, System: File, Verb: "write", Object: "kubeconfig", Nth: 1, Phase: Leaves})
	if err != nil {
		t.Fatal(err)
	}
	lines, err := Read(strings.NewReader(string(whole) + "\n" + string(whole[:20])))
	if err != nil || len(lines) != 1 || lines[0].Key() != "file write kubeconfig#1" {
		t.Errorf("got %+v, %v", lines, err)
	}
	if _, err := Read(strings.NewReader("{\n" + string(whole) + "\n")); err == nil ||
		!strings.Contains(err.Error(), "line 1") {
		t.Errorf("half a line in the middle: %v", err)
	}
}
