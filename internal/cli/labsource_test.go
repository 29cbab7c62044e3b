package cli

import (
	"os"
	"strings"
	"testing"
)

// A command that cannot build the lab says so before it creates its state folder.
func TestRehearsalWithoutTheLabsSourceLeavesNothing(t *testing.T) {
	for _, args := range []string{"--lab", "--lab preflight", "lab up"} {
		dir := t.TempDir()
		r := execute(t, t.Context(), dir, "HOME="+dir, strings.Fields(args)...)
		if r.code != ExitFailed || !strings.Contains(r.stderr, "in no clone of Slipway") {
			t.Errorf("%s: exit %d: %s", args, r.code, r.stderr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s left %v, %v", args, entries, err)
		}
	}
}
