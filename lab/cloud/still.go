package cloud

// Still keeps the state, and has no request answered and no action end until release is called.
func (c *Cloud) Still() (release func()) {
	c.mu.Lock()
	if err := c.save(); err != nil {
		c.config.Log.Error("the simulated cloud's state is not kept", "error", err)
	}
	return c.mu.Unlock
}
