package cli

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// A deadline of the run that its steps may exceed is refused with the sum,
// before anything is made; one that is enough is not.
func TestTheRunsDeadlineIsAddedUpFirst(t *testing.T) {
	var seen []string
	s, f := stateWithFakeLab(t)
	f.Info.HetznerEndpoint = deaf(t, &seen)
	dir := t.TempDir()
	t.Chdir(dir)
	do := func(args string) ran {
		return execute(t, t.Context(), dir, "", append(strings.Fields(args), "--lab", "--state-dir", string(s))...)
	}
	for args, says := range map[string]string{
		"BOOTSTRAP_TIMEOUT=1h":                                     "+ kubeconfig 28m20s + cilium 1h18m20s + addons 3m0s + wait-releases 18m20s = 3h38m10s",
		"all BOOTSTRAP_TIMEOUT=2h":                                 "+ pivot ",
		"preflight BOOTSTRAP_TIMEOUT=1m":                           "preflight 1m20s = 1m20s",
		"image BOOTSTRAP_TIMEOUT=10m":                              "preflight 1m20s + image 18m20s = 19m40s",
		"--parallel 1 BOOTSTRAP_TIMEOUT=3h":                        "talos-ccm 48m20s",
		"preflight BOOTSTRAP_TIMEOUT=5m PREFLIGHT_TIMEOUT=10m":     "preflight 10m20s = 10m20s",
		"bootstrap BOOTSTRAP_TIMEOUT=-1m":                          "not a time to wait",
		"bootstrap BOOTSTRAP_TIMEOUT=3h CONTROL_PLANE_TIMEOUT=99h": "longer than 48h",
	} {
		if r := do(args); r.code != ExitUsage || !strings.Contains(r.stderr, says) {
			t.Errorf("%s: %+v does not say %q", args, r, says)
		}
	}
	if len(seen) > 0 || lab.Exists(s.Path(statedir.RunsFolder)) || lab.Exists(s.Path(statedir.EnvironmentFile)) {
		t.Errorf("something was done: %v", seen)
	}
	if r := do("preflight BOOTSTRAP_TIMEOUT=80s"); r.code != ExitFailed || !strings.Contains(r.stderr, "unauthorized") {
		t.Errorf("a deadline that is enough: %+v", r)
	}
}
