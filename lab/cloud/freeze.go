package cloud

// Freeze saves the state, and holds all requests and actions until release is called.
func (c *Cloud) Freeze() (release func()) {
	c.mu.Lock()
	if err := c.save(); err != nil {
		c.config.Log.Error("the simulated cloud's state was not saved", "error", err)
	}
	return c.mu.Unlock
}
