package world

import (
	"fmt"

	"github.com/slipway-k8s/slipway/lab/kubelet"
)

// Latency is how long what is simulated takes.
type Latency string

const (
	// FastLatency shortens everything to a second or two.
	FastLatency Latency = "fast"
	// RealLatency takes as long as the real cloud does.
	RealLatency Latency = "real"
)

// ParseLatency reads a flag's value.
func ParseLatency(s string) (Latency, error) {
	switch l := Latency(s); l {
	case FastLatency, RealLatency:
		return l, nil
	default:
		return "", fmt.Errorf("latency %q: want %q or %q", s, FastLatency, RealLatency)
	}
}

func (l Latency) kubelet() kubelet.Latency {
	if l == RealLatency {
		return kubelet.RealLatency()
	}
	return kubelet.FastLatency()
}
