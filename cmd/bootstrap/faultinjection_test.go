//go:build !crash

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/effect"
)

// A command that cannot end itself does not run as if it had not been asked to: a test would take that for a run without a fault.
func TestCommandWithoutFaultInjectionRefusesIt(t *testing.T) {
	for _, args := range []string{"--lab", "status", "config show", "destroy --yes"} {
		dir := t.TempDir()
		r := execute(t, t.Context(), dir, effect.CrashVariable+"=never", strings.Fields(args)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, "SLIPWAY_CRASH") || !strings.Contains(r.stderr, "-tags crash") {
			t.Errorf("%s: exit %d: %s", args, r.code, r.stderr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s left %v, %v", args, entries, err)
		}
	}
	if r := execute(t, t.Context(), t.TempDir(), effect.CrashVariable+"=", "config", "show"); r.code != exitDone {
		t.Errorf("with an empty variable: exit %d: %s", r.code, r.stderr)
	}
}
