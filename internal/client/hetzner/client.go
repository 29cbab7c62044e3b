package hetzner

import (
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// ClientOptions are those of every client that Slipway makes: its requests go through the transport, and it asks how
// far an action is after half a second, a second, two, four, and then every five seconds. hcloud-go itself asks twice a
// second, 360 times while a snapshot is created that takes three minutes.
func ClientOptions(transport http.RoundTripper) []hcloud.ClientOption {
	return []hcloud.ClientOption{
		hcloud.WithHTTPClient(&http.Client{Transport: transport}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ExponentialBackoffWithOpts(hcloud.ExponentialBackoffOpts{
			Base: time.Second / 2, Multiplier: 2, Cap: 5 * time.Second,
		})}),
	}
}
