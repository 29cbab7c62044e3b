package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// With PIVOT=false no target leads to the pivot, until the cluster manages itself.
func TestTargetsWithoutPivot(t *testing.T) {
	planOf := func(allow string) *steps.Plan {
		cfg := config.Defaults()
		cfg.Pivot, cfg.FirewallAllow = config.PivotFalse, allow
		plan, err := steps.New(cfg, platform.Tools{Management: kind.Given{}})
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	plan := planOf("auto")
	for _, word := range []string{targetPivot, targetAccess, "clean"} {
		_, err := session.ResolveTargets([]string{targetBootstrap, word}, plan, false, commands()...)
		if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "PIVOT=true") {
			t.Errorf("%s: %v", word, err)
		}
		if _, err := session.ResolveTargets([]string{word}, plan, true, commands()...); err != nil {
			t.Errorf("%s of a cluster that manages itself: %v", word, err)
		}
	}
	for _, managed := range []bool{false, true} {
		names, err := session.ResolveTargets([]string{targetAll}, plan, managed, commands()...)
		if err != nil || !slices.Contains(names, "firewall-apply") || slices.Contains(names, targetPivot) ||
			slices.Contains(names, targetAccess) != managed {
			t.Errorf("all, managed %t: %v, %v", managed, names, err)
		}
	}
	_, err := session.ResolveTargets([]string{targetAll}, planOf(""), false, commands()...)
	if _, ok := errors.AsType[*usage.Error](err); !ok || !strings.Contains(err.Error(), "FIREWALL_ALLOW") {
		t.Errorf("all with a firewall that closes the management cluster out: %v", err)
	}
	if _, err := session.ResolveTargets([]string{targetBootstrap}, planOf(""), false, commands()...); err != nil {
		t.Errorf("bootstrap, which has no firewall: %v", err)
	}
}
