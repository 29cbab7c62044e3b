package operations

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/session"
)

// A rollout that may never end is asked for, unless the operator agreed beforehand.
func TestConfirmRisk(t *testing.T) {
	no := errors.New("no")
	for _, tt := range []struct {
		name, flaw string
		yes, can   bool // ask
		answer     error
		agreed     bool
	}{
		{"no flaw", "", false, false, nil, true}, {"yes", "why", false, true, nil, true}, {"no", "why", false, true, no, false},
		{"no answer is possible", "why", false, false, nil, false}, {"beforehand", "why", true, false, nil, true},
	} {
		asked := ""
		ask := session.Questions{}
		if tt.can {
			ask.Confirm = func(_ context.Context, question, _ string) error { asked = question; return tt.answer }
		}
		s := &session.Session{Cluster: session.Cluster{Caller: &session.Caller{},
			Request: session.Request{Options: session.Options{Yes: tt.yes}}}}
		if err := confirmRisk(t.Context(), s, "scale", tt.flaw, ask); (err == nil) != tt.agreed {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.can != strings.Contains(asked, "scale may never end: why") {
			t.Errorf("%s: asked %q", tt.name, asked)
		}
	}
	lines := ScaleLines(scale.Change{Group: scale.ControlPlaneGroup, From: 3, To: 3, Flaw: "why"})
	if len(lines) != 2 || lines[1] != "it may never end: why" {
		t.Errorf("%q", lines)
	}
}
