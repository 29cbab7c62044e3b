//go:build !crash

package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/base/effect"
)

// A command that cannot end itself does not run as if it had not been asked to: a test would take that for a run
// without a fault.
func TestCommandWithoutFaultInjectionRefusesIt(t *testing.T) {
	for _, args := range []string{"--lab", "status", "config show", "destroy --yes"} {
		dir := t.TempDir()
		r := execute(t, t.Context(), dir, effect.CrashVariable+"=never", strings.Fields(args)...)
		if r.code != ExitUsage || !strings.Contains(r.stderr, "SLIPWAY_CRASH") || !strings.Contains(r.stderr, "-tags crash") {
			t.Errorf("%s: exit %d: %s", args, r.code, r.stderr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s left %v, %v", args, entries, err)
		}
	}
	if r := execute(t, t.Context(), t.TempDir(), effect.CrashVariable+"=", "config", "show"); r.code != ExitDone {
		t.Errorf("with an empty variable: exit %d: %s", r.code, r.stderr)
	}
}

// The command contains internal/base/crash only where it is built with -tags crash. The test is in this package, so that its
// result is not cached when an import changes.
func TestReleasedCommandHasNoFaultInjection(t *testing.T) {
	for tags, want := range map[string]bool{"": false, "crash": true} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "./cmd/bootstrap")
		list.Dir = "../.."
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		deps := strings.Fields(string(out))
		const here = "github.com/slipway-k8s/slipway/internal/base/"
		if !slices.Contains(deps, here+"effect") {
			t.Errorf("with tags %q the command does not record its effects", tags)
		}
		if slices.Contains(deps, here+"crash") != want {
			t.Errorf("with tags %q the command imports internal/base/crash: %v, want %v", tags, !want, want)
		}
	}
}
