package cli

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/session"
)

// TestAgreeToFlaw: a rollout that may never end is asked for, unless --yes was said.
func TestAgreeToFlaw(t *testing.T) {
	for _, tt := range []struct {
		flaw, answer string
		yes, agreed  bool
	}{
		{"", "", false, true}, {"why", "yes\n", false, true}, {"why", "no\n", false, false}, {"why", "", false, false},
		{"why", "", true, true},
	} {
		var shown strings.Builder
		c := &console{stdout: &shown, stderr: &shown}
		if tt.answer != "" {
			c.stdin = strings.NewReader(tt.answer)
		}
		err := agreeToFlaw(t.Context(), &running{console: c, options: options{Options: session.Options{Yes: tt.yes}}}, "scale", tt.flaw)
		if (err == nil) != tt.agreed {
			t.Errorf("%+v: %v, asked %q", tt, err, shown.String())
		}
		if asked := strings.Contains(shown.String(), tt.flaw) && shown.Len() > 0; asked != (tt.answer != "") {
			t.Errorf("%+v: asked %q", tt, shown.String())
		}
	}
	lines := linesOf(scale.Change{Group: scale.ControlPlaneGroup, From: 3, To: 3, Flaw: "why"})
	if len(lines) != 2 || lines[1] != "it may never end: why" {
		t.Errorf("%q", lines)
	}
}
