package cli

import (
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// checkBudget refuses a deadline of the run that its steps may exceed though each keeps
// its own. It adds up on paper, before anything is asked for or made.
func checkBudget(c *console, cfg settings.Configuration, targets []string, parallel int) error {
	if cfg.BootstrapTimeout == 0 {
		return nil
	}
	b, err := planOffline(c, cfg)
	if err != nil {
		return err
	}
	if err := b.Plan.Graph.Fits(cfg.BootstrapTimeout.D(), parallel, targets...); err != nil {
		return usage.Errorf("BOOTSTRAP_TIMEOUT: %w", err)
	}
	return nil
}
