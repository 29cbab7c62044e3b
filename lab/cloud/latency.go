package cloud

import (
	"math/rand/v2"
	"time"
)

// Span is a range of durations that an action takes, drawn evenly.
type Span struct{ Min, Max time.Duration }

// Latency is how long the cloud takes.
type Latency struct {
	// Actions holds the span of each action command; the key "" is for all others.
	Actions map[string]Span
	// HealthCheck scales the load balancers' health check interval and timeout (15 s and 10 s unless
	// the service says otherwise): 1 is the real cloud's pace.
	HealthCheck float64
}

// FastLatency is the lab's default: actions take 0.2 to 1 s, health checks run every half second.
func FastLatency() Latency {
	return Latency{
		Actions: map[string]Span{
			"":              {200 * time.Millisecond, 300 * time.Millisecond},
			"create_server": {500 * time.Millisecond, 800 * time.Millisecond},
			"start_server":  {300 * time.Millisecond, 500 * time.Millisecond},
			"create_image":  {800 * time.Millisecond, time.Second},
		},
		HealthCheck: 1.0 / 30,
	}
}

// RealLatency is the real cloud's pace. The figures are assumed, from general experience with small
// server types, not measured for this project: a server is made in 5 to 12 s and started in 3 to
// 8 s, an image of a few GB takes one to three minutes, most else a second or three.
func RealLatency() Latency {
	return Latency{
		Actions: map[string]Span{
			"":                     {time.Second, 3 * time.Second},
			"create_server":        {5 * time.Second, 12 * time.Second},
			"start_server":         {3 * time.Second, 8 * time.Second},
			"shutdown_server":      {5 * time.Second, 15 * time.Second},
			"rebuild_server":       {10 * time.Second, 20 * time.Second},
			"create_image":         {60 * time.Second, 180 * time.Second},
			"create_load_balancer": {2 * time.Second, 6 * time.Second},
		},
		HealthCheck: 1,
	}
}

// InstantLatency makes actions end within milliseconds; for tests.
func InstantLatency() Latency {
	return Latency{
		Actions:     map[string]Span{"": {time.Millisecond, 3 * time.Millisecond}},
		HealthCheck: 1.0 / 1000,
	}
}

// of draws the duration of one action.
func (l Latency) of(command string, random *rand.Rand) time.Duration {
	span, ok := l.Actions[command]
	if !ok {
		span = l.Actions[""]
	}
	if span.Max <= span.Min {
		return span.Min
	}
	return span.Min + time.Duration(random.Int64N(int64(span.Max-span.Min)))
}
