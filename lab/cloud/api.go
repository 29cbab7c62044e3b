package cloud

import "slices"

// API is a date of the Hetzner Cloud API: the simulated one behaves as the real one did then.
type API string

const (
	// APIFebruary2026 has datacenters in servers and Primary IPs, deletes a load balancer at once, and answers a
	// read-only token with token_readonly.
	APIFebruary2026 API = "2026-02"
	// APINovember2026 is the API since 2026-10-05: no datacenters (removed 2026-07-01, 410 since 2026-10-01),
	// must_be_unassigned (2026-05-01), load balancers with existing Primary IPs, whose deletion is an action.
	APINovember2026 API = "2026-11"
)

// APIs are all dates, the oldest first.
func APIs() []API { return []API{APIFebruary2026, APINovember2026} }

// since tells whether the simulated API is that of a date, or a later one.
func (c *Cloud) since(date API) bool {
	return slices.Index(APIs(), c.config.API) >= slices.Index(APIs(), date)
}

// API is the date of the simulated API.
func (c *Cloud) API() API { return c.config.API }
