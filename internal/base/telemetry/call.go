package telemetry

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.34.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// Call begins a call's span; the function that it returns ends it. status is that of HTTP, 0 where there is none. Of a
// call whose answer comes in pieces, a watch say, it is the answer's beginning.
func (t *Tracer) Call(c effect.Seen) (ended func(status int, err error)) {
	if t == nil {
		return func(int, error) {}
	}
	t.mu.Lock()
	parent := t.run
	if ctx, ok := t.steps[c.Step]; ok {
		parent = ctx
	}
	t.mu.Unlock()
	_, span := t.tracer.Start(context.WithoutCancel(parent), spanName(c), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attributes(c)...))
	return func(status int, err error) {
		if status > 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(status))
		}
		switch {
		case err != nil:
			span.SetAttributes(semconv.ErrorTypeOther)
			fail(span, err.Error())
		case status >= 400:
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
			fail(span, "status "+strconv.Itoa(status))
		}
		span.End()
	}
}

// spanName has few values: the kind of the object, and not the object.
func spanName(c effect.Seen) string {
	kind, _, _ := strings.Cut(c.Object, "/")
	return strings.Join(strings.Fields(string(c.System)+" "+c.Verb+" "+kind), " ")
}

func attributes(c effect.Seen) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("slipway.world", string(c.System))}
	if c.Object != "" && !c.RPC {
		all = append(all, attribute.String("slipway.object", c.Object))
	}
	if c.Step != "" {
		all = append(all, attribute.String("slipway.step", c.Step))
	}
	if c.RPC {
		all = append(all, semconv.RPCSystemGRPC, semconv.RPCService(c.Object), semconv.RPCMethod(c.Verb))
	}
	if host, port, err := net.SplitHostPort(c.Host); err == nil {
		all = append(all, semconv.ServerAddress(host))
		if n, err := strconv.Atoi(port); err == nil {
			all = append(all, semconv.ServerPort(n))
		}
	} else if c.Host != "" {
		all = append(all, semconv.ServerAddress(c.Host))
	}
	if c.Method != "" {
		all = append(all, semconv.HTTPRequestMethodKey.String(c.Method), semconv.URLFull(cmp.Or(c.Scheme, "https")+"://"+
			c.Host+c.Path))
	}
	return all
}
