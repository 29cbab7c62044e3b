package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
)

// Config configures a Cloud.
type Config struct {
	// Dir holds the state (state.json, 0600: it contains user data). It is created if absent.
	Dir string
	// Token is the API token of the only project.
	Token string
	// ReadOnlyToken is another token of the project, with which nothing can be changed; empty: there is none.
	ReadOnlyToken string
	// API is the date of the API; empty means APINovember2026.
	API API
	// Machine creates the machines of servers.
	Machine Machine
	// Listen opens a listening socket on "address:port" for a load balancer.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	// PublicServers and PublicLoadBalancers are the pools of public IPv4 addresses, inside 127.0.0.0/8.
	PublicServers       netip.Prefix
	PublicLoadBalancers netip.Prefix
	// PublicIPv6 is the range of the servers' /64; zero means the documentation range 2001:db8::/32 (RFC 3849). These
	// addresses are not reachable.
	PublicIPv6 netip.Prefix
	// Latency is how long operations take; zero means FastLatency.
	Latency Latency
	// RateLimit is the project's rate limit; zero means DefaultRateLimit.
	RateLimit RateLimit
	// RequestLog is the file that gets one JSON line for each request; empty means none.
	RequestLog string
	// Log gets the errors that no API client sees; nil means slog.Default.
	Log *slog.Logger
	// Seed makes faults with a probability, and the jitter of latencies, reproducible.
	Seed uint64
}

// loopback contains every address of the lab.
var loopback = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)

// withDefaults returns the Config with defaults for its zero values, or an error.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	need(c.Dir != "", "Dir is empty")
	need(c.Token != "", "Token is empty")
	need(c.Machine != nil, "Machine is nil")
	need(c.Listen != nil, "Listen is nil")
	need(within(loopback, c.PublicServers), "PublicServers %v is not inside %v", c.PublicServers, loopback)
	need(within(loopback, c.PublicLoadBalancers), "PublicLoadBalancers %v is not inside %v", c.PublicLoadBalancers,
		loopback)
	if !c.PublicIPv6.IsValid() {
		c.PublicIPv6 = netip.MustParsePrefix("2001:db8::/32")
	}
	need(c.PublicIPv6.Addr().Is6() && c.PublicIPv6.Bits() <= 56, "PublicIPv6 %v is not an IPv6 range of /56 or wider",
		c.PublicIPv6)
	if c.API == "" {
		c.API = APINovember2026
	}
	need(slices.Contains(APIs(), c.API), "API %q is none of %v", c.API, APIs())
	if c.Latency.Actions == nil {
		c.Latency = FastLatency()
	}
	if c.RateLimit == (RateLimit{}) {
		c.RateLimit = DefaultRateLimit
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if len(wrong) > 0 {
		return c, fmt.Errorf("configuring the simulated Hetzner Cloud: %w", errors.Join(wrong...))
	}
	return c, nil
}

// within says whether inner is a valid part of outer.
func within(outer, inner netip.Prefix) bool {
	return inner.IsValid() && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
