//go:build unix

package cli

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/slipway-k8s/slipway/internal/base/effect"
	"github.com/slipway-k8s/slipway/internal/base/telemetry"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/hetznertest"
)

// fakeCollector takes spans over OTLP/HTTP.
type fakeCollector struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	spans    []*tracepb.Span
	services []string
	raw      bytes.Buffer
}

func newFakeCollector(t *testing.T) *fakeCollector {
	t.Helper()
	c := &fakeCollector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(r.Body)
		var got collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(data, &got)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests++
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.raw.Write(data)
		for _, resource := range got.ResourceSpans {
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					c.services = append(c.services, a.Value.GetStringValue())
				}
			}
			for _, scope := range resource.ScopeSpans {
				c.spans = append(c.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func attributeOf(s *tracepb.Span, key string) *commonpb.AnyValue {
	i := slices.IndexFunc(s.Attributes, func(a *commonpb.KeyValue) bool { return a.Key == key })
	if i < 0 {
		return nil
	}
	return s.Attributes[i].Value
}

// TestSpansOfARun sends the spans of a whole bootstrap to a collector, and looks at whose child each is.
func TestSpansOfARun(t *testing.T) {
	c := newFakeCollector(t)
	q := newQuick(t, quickCharts(t))
	q.environment = []string{telemetry.Endpoint + "=" + c.URL}
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("it ends with %d: %s", code, q.stderr)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	var root *tracepb.Span
	for _, s := range c.spans {
		byID[string(s.SpanId)] = s
		if len(s.ParentSpanId) == 0 {
			root = s
		}
	}
	if root == nil || root.Name != "run bootstrap firewall firewall-apply" || c.services[0] != "slipway" {
		t.Fatalf("the root is %v of %q", root, c.services)
	}
	chains := map[string]bool{} // "call < step < run"
	for _, s := range c.spans {
		if !bytes.Equal(s.TraceId, root.TraceId) {
			t.Errorf("%s is of another trace", s.Name)
		}
		chain := s.Name
		for at := s; len(at.ParentSpanId) > 0; {
			parent := byID[string(at.ParentSpanId)]
			if parent == nil {
				t.Fatalf("the parent of %s was not sent", at.Name)
			}
			if at.StartTimeUnixNano < parent.StartTimeUnixNano {
				t.Errorf("%s begins before %s", at.Name, parent.Name)
			}
			chain, at = chain+" < "+parent.Name, parent
		}
		chains[chain] = true
		if url := attributeOf(s, "url.full").GetStringValue(); strings.ContainsAny(url, "?@") {
			t.Errorf("%s has %s", s.Name, url)
		}
	}
	for _, want := range []string{
		"wait-cp < " + root.Name, "wait-nodes < " + root.Name,
		"hetzner create firewalls < firewall < " + root.Name, "hetzner get locations < preflight < " + root.Name,
		"management apply clusters.cluster.x-k8s.io < apply < " + root.Name,
		"workload get daemonsets.apps < cilium < " + root.Name,
	} {
		if !chains[want] {
			t.Errorf("no span is %s of %q", want, slices.Sorted(maps.Keys(chains)))
		}
	}
	// Helm passes no context on: with several running steps the span is a child of the run, not of the step.
	if !slices.ContainsFunc(slices.Collect(maps.Keys(chains)),
		func(chain string) bool { return strings.HasPrefix(chain, "workload create secrets < ") }) {
		t.Error("Helm's calls have no spans")
	}
	i := slices.IndexFunc(c.spans, func(s *tracepb.Span) bool { return s.Name == "hetzner create firewalls" })
	if i < 0 {
		t.Fatalf("chains %v", chains)
	}
	for key, want := range map[string]string{"http.request.method": "POST", "slipway.object": "firewalls/k8s",
		"slipway.step": "firewall", "server.address": "127.0.0.1"} {
		if got := attributeOf(c.spans[i], key).GetStringValue(); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got := attributeOf(c.spans[i], "http.response.status_code").GetIntValue(); got != http.StatusCreated {
		t.Errorf("its status is %d", got)
	}
	failed := slices.ContainsFunc(c.spans, func(s *tracepb.Span) bool {
		return s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR &&
			attributeOf(s, "error.type").GetStringValue() == "404"
	})
	if !failed {
		t.Error("no call is marked as failed; a bootstrap looks for much that is not there")
	}
	if strings.Contains(c.raw.String(), hetznertest.Token) {
		t.Error("the token is in the spans")
	}
}

// TestNoSpansUnlessAskedFor names a collector and says that nothing is to be sent.
func TestNoSpansUnlessAskedFor(t *testing.T) {
	c := newFakeCollector(t)
	for _, environment := range []map[string]string{
		{}, {"OTEL_SERVICE_NAME": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		{telemetry.Endpoint: c.URL, "OTEL_SDK_DISABLED": "true"},
	} {
		tracer, err := telemetry.Start(environment, telemetry.Run{})
		if tracer != nil || err != nil {
			t.Errorf("%v: %v, %v", environment, tracer, err)
		}
		tracer.StepBegan("x", time.Now(), 1, "")
		tracer.Call(effect.Seen{})(0, nil)
		if err := tracer.End(); err != nil {
			t.Error(err)
		}
	}
	if c.requests > 0 {
		t.Errorf("%d requests", c.requests)
	}
	if _, err := telemetry.Start(map[string]string{telemetry.Endpoint: c.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
		telemetry.Run{}); err == nil {
		t.Error("an unknown protocol is taken")
	}
}

// TestCollectorThatIsSilent has a collector that takes connections and never answers: the run ends well, and a moment
// later.
func TestCollectorThatIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	q := newQuick(t, quickCharts(t))
	q.environment = []string{telemetry.Endpoint + "=http://" + l.Addr().String()}
	if code := q.run(t, death{}); code != ExitDone {
		t.Fatalf("it ends with %d: %s", code, q.stderr)
	}
	if !strings.Contains(q.stderr, "note: ") || !strings.Contains(q.stderr, "spans were") {
		t.Errorf("it does not say that spans are lost: %q", q.stderr)
	}
	if n := strings.Count(q.stderr, "\n"); n > 1 {
		t.Errorf("%d lines on standard error: %s", n, q.stderr)
	}
	if q.took > 20*time.Second {
		t.Errorf("it takes %s", q.took)
	}
}
