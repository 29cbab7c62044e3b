// Package telemetry sends what a run does to an OpenTelemetry collector: a span for the run, one for each attempt at a
// step, and one for each call, under the step that makes it. It never holds a run up, and never fails one.
package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.34.0"
	"go.opentelemetry.io/otel/trace"
)

// The variables of the environment that say where spans go, as OpenTelemetry's specification has them. Headers,
// certificates, compression and the like are read from the environment by OpenTelemetry itself.
const (
	Endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	disabled       = "OTEL_SDK_DISABLED"
	serviceName    = "OTEL_SERVICE_NAME"
)

const (
	// sendEvery is how long a span waits for others to be sent with.
	sendEvery = 2 * time.Second
	// sendWithin bounds one attempt at sending, with its repetitions.
	sendWithin = 5 * time.Second
	// flushWithin bounds the wait for what is left at the run's end: the command must not wait longer for a collector that
	// is away.
	flushWithin = 3 * time.Second
)

// Run is what there is to know of a run when it begins.
type Run struct{ ID, Name, Cluster, Environment, Version string }

// Tracer sends the spans of one run. A nil one sends nothing.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sent     *sender

	mu    sync.Mutex
	run   context.Context // with the run's span
	steps map[string]context.Context
}

// Start begins the run's span. It returns nil where the environment names no collector: then nothing was begun. It does
// not speak to the collector.
func Start(environment map[string]string, r Run) (*Tracer, error) {
	if environment[Endpoint] == "" && environment[tracesEndpoint] == "" || strings.EqualFold(environment[disabled],
		"true") {
		return nil, nil
	}
	exporter, err := newExporter(environment)
	if err != nil {
		return nil, err
	}
	t := &Tracer{sent: &sender{SpanExporter: exporter}, steps: map[string]context.Context{}}
	name := cmp.Or(environment[serviceName], "slipway")
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t.sent, sdktrace.WithBatchTimeout(sendEvery), sdktrace.WithExportTimeout(sendWithin)),
		sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName(name),
			semconv.ServiceVersion(r.Version), semconv.ServiceInstanceID(r.ID))),
	)
	t.tracer = t.provider.Tracer("github.com/slipway-k8s/slipway", trace.WithInstrumentationVersion(r.Version))
	t.run, _ = t.tracer.Start(context.Background(), r.Name, trace.WithAttributes(
		attribute.String("slipway.run.id", r.ID), attribute.String("slipway.cluster", r.Cluster),
		attribute.String("slipway.world", r.Environment)))
	return t, nil
}

func newExporter(environment map[string]string) (sdktrace.SpanExporter, error) {
	ctx := context.Background() // neither begins a connection that it would bound
	endpoint := environment[tracesEndpoint]
	switch p := cmp.Or(environment[tracesProtocol], environment[protocol]); p {
	case "", "http/protobuf":
		if endpoint == "" {
			endpoint = strings.TrimSuffix(environment[Endpoint], "/") + "/v1/traces"
		}
		return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	case "grpc":
		return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cmp.Or(endpoint, environment[Endpoint])))
	default:
		return nil, fmt.Errorf("%s=%s is neither http/protobuf nor grpc", protocol, p)
	}
}

// StepBegan begins the span of an attempt at a step.
func (t *Tracer) StepBegan(step string, at time.Time, attempt int, why string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, begun := t.steps[step]; begun {
		return
	}
	t.steps[step], _ = t.tracer.Start(t.run, step, trace.WithTimestamp(at), trace.WithAttributes(
		attribute.String("slipway.step", step), attribute.Int("slipway.attempt", attempt), attribute.String("slipway.reason",
			why)))
}

// StepSaid notes what a step does or waits for.
func (t *Tracer) StepSaid(step string, at time.Time, text string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx, ok := t.steps[step]; ok {
		trace.SpanFromContext(ctx).AddEvent(text, trace.WithTimestamp(at))
	}
}

// StepEnded ends the span of a step; trouble is why it failed.
func (t *Tracer) StepEnded(step string, at time.Time, outcome, trouble string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, ok := t.steps[step]
	if !ok {
		return
	}
	delete(t.steps, step)
	span := trace.SpanFromContext(ctx)
	span.SetAttributes(attribute.String("slipway.outcome", outcome))
	fail(span, trouble)
	span.End(trace.WithTimestamp(at))
}

// fail marks a span as failed.
func fail(span trace.Span, trouble string) {
	if trouble != "" {
		span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(semconv.ExceptionMessage(trouble)))
		span.SetStatus(codes.Error, trouble)
	}
}

// RunEnded notes why the run failed; empty: it did not.
func (t *Tracer) RunEnded(trouble string) {
	if t == nil {
		return
	}
	fail(trace.SpanFromContext(t.run), trouble)
}

// End ends the spans that are open and waits, not for long, until all are sent. Its error says how many were not, and
// why.
func (t *Tracer) End() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	for _, ctx := range t.steps {
		trace.SpanFromContext(ctx).End()
	}
	clear(t.steps)
	trace.SpanFromContext(t.run).End()
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	lost, why := t.sent.failures()
	switch {
	case why != nil:
		return fmt.Errorf("%d spans were not sent: %w", lost, why)
	case err != nil:
		return fmt.Errorf("not all spans were sent within %s: %w", flushWithin, err)
	}
	return nil
}

// sender keeps what goes wrong with sending to itself: OpenTelemetry would print it in the middle of a run's output.
type sender struct {
	sdktrace.SpanExporter

	mu   sync.Mutex
	lost int
	last error
}

// ExportSpans implements sdktrace.SpanExporter.
func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := s.SpanExporter.ExportSpans(ctx, spans); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lost, s.last = s.lost+len(spans), err
	}
	return nil
}

func (s *sender) failures() (lost int, last error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, s.last
}
