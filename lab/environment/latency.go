package environment

import (
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/rescue"
	"github.com/slipway-k8s/slipway/lab/standin"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// Latency selects how long simulated operations take.
type Latency string

const (
	// FastLatency shortens every operation to a second or two.
	FastLatency Latency = "fast"
	// RealLatency uses the durations of the real cloud.
	RealLatency Latency = "real"
)

// fastScale scales the polls of the stand-ins with FastLatency: 10 s become half a second.
const fastScale = 0.05

// ParseLatency parses the value of a flag.
func ParseLatency(s string) (Latency, error) {
	switch l := Latency(s); l {
	case FastLatency, RealLatency:
		return l, nil
	default:
		return "", fmt.Errorf("latency %q: want %q or %q", s, FastLatency, RealLatency)
	}
}

// StandInEnv is the environment that tells stand-ins how often to poll.
func (l Latency) StandInEnv() map[string]string {
	if l == FastLatency {
		return map[string]string{standin.TimeScaleVariable: fmt.Sprint(fastScale)}
	}
	return nil
}

func (l Latency) kubelet() kubelet.Latency {
	if l == RealLatency {
		return kubelet.RealLatency()
	}
	return kubelet.FastLatency()
}

func (l Latency) talos() talos.Latency {
	if l == RealLatency {
		return talos.RealLatency()
	}
	return talos.FastLatency()
}

func (l Latency) rescue() rescue.Latency {
	if l == RealLatency {
		return rescue.RealLatency()
	}
	return rescue.FastLatency()
}

func (l Latency) cloud() cloud.Latency {
	if l == RealLatency {
		return cloud.RealLatency()
	}
	return cloud.FastLatency()
}

// rateLimit is the real rate limit per scaled hour: stand-ins that poll more often may send more requests.
func (l Latency) rateLimit() cloud.RateLimit {
	limit := cloud.DefaultRateLimit
	if l == FastLatency {
		limit.Per = time.Duration(fastScale * float64(limit.Per))
	}
	return limit
}
