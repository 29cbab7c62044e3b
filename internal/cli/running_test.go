package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// The log says where a step panicked; the message has no room for it.
func TestTheLogHasTheStackOfAPanic(t *testing.T) {
	g := flow.New("panic")
	flow.Add(g, "explode", func(context.Context, flow.Say) (int, error) { return explodeInAStep(nil), nil })
	_, err := g.Run(t.Context(), flow.Options{Journal: flow.Memory(), Run: "1"})
	var log bytes.Buffer
	logPanic(&log, err)
	if err == nil || strings.Contains(err.Error(), "explodeInAStep") || !strings.Contains(log.String(), "explodeInAStep") {
		t.Errorf("%v; the log: %q", err, log.String())
	}
}

func explodeInAStep(p *int) int { return *p }
