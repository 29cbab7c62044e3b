package main

// fits refuses a deadline of the run that its steps may exceed though each keeps
// its own. It adds up on paper, before anything is asked for or made.
func (c *command) fits(cfg configuration, targets []string, parallel int) error {
	if cfg.BootstrapTimeout == 0 {
		return nil
	}
	plan, err := c.planOnPaper(cfg)
	if err != nil {
		return err
	}
	if err := plan.Graph.Fits(cfg.BootstrapTimeout.D(), parallel, targets...); err != nil {
		return usagef("BOOTSTRAP_TIMEOUT: %w", err)
	}
	return nil
}
