// Package caph stands in for Cluster API Provider Hetzner v1.0.7, v1.0.12 and v1.1.8 (--follow), which the module
// proxy does not serve: HetznerClusters become a network, a load balancer and placement groups, HCloudMachines become
// servers, in Hetzner's API, with the names, labels, conditions, finalizers, order and waits of the original. It takes
// the original's flags and nothing but a kubeconfig and Go's default HTTP client (HTTPS_PROXY, SSL_CERT_FILE) to
// https://api.hetzner.cloud/v1, so that the original can take its place.
//
// Where it differs:
//   - Where the original crashes on a missing spec.controlPlaneEndpoint it sets LoadBalancerReady to false and says so.
//   - A machine without spec.publicNetwork gets both addresses, also where the mutating webhook is not in place.
//   - The deadline of v1.1.8 for a name that is taken, its checks of a load balancer's targets by HTTP, its proxy
//     protocol, images by URL and the condition Available of an HCloudMachineTemplate are not simulated.
//   - Bare metal, HCloudRemediation and the cluster and remediation templates are not
//     simulated: their objects stay as they are.
//   - Webhooks are served only if a certificate exists: --webhook-cert-dir, --webhook-host and --webhook-port are flags
//     of the stand-in.
//   - Polls are scaled by LAB_TIME_SCALE (package standin; 1, the original's intervals, if unset). Deadlines, the
//     one-hour age of a certificate request and --sync-period are not.
package caph

import (
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/slipway-k8s/slipway/lab/standin"
)

// The original's poll intervals (v1.0.7, v1.0.12 and v1.1.8), before scaling.
const (
	ownerPoll        = 2 * time.Second  // HetznerCluster without its Cluster's ownerRef
	secretPoll       = 10 * time.Second // the Hetzner secret is missing
	rateLimitPoll    = 30 * time.Second // after a 429, until --rate-limit has passed
	adoptPoll        = 60 * time.Second // the load balancer to adopt does not exist
	bootstrapPoll    = 10 * time.Second // Machine without bootstrap data
	impossiblePoll   = 5 * time.Minute  // image, key, type or placement group missing: needs the operator
	serverOffPoll    = 30 * time.Second // after poweron
	nameTakenPoll    = 10 * time.Minute // another server has the machine's name
	startingPoll     = 60 * time.Second // status starting
	transitionalPoll = 10 * time.Second // any other status: initializing, migrating, …
	shutdownPoll     = 30 * time.Second // after shutdown
	machinesPoll     = 10 * time.Second // a deleted HetznerCluster still has machines
)

// Hetzner returns an API client for a token.
type Hetzner func(token string) *hcloud.Client

// apiClient is the client of the original: the default HTTP client, its name in
// the user agent, and its retries, scaled.
func apiClient(pace standin.TimeScale, version string) Hetzner {
	backoff := hcloud.ExponentialBackoffWithOpts(hcloud.ExponentialBackoffOpts{
		Base: pace.Of(time.Second), Multiplier: 2, Cap: pace.Of(time.Minute),
	})
	return func(token string) *hcloud.Client {
		return hcloud.NewClient(
			hcloud.WithToken(token),
			hcloud.WithApplication("cluster-api-provider-hetzner", version+"-stand-in"),
			hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: backoff, MaxRetries: 5}),
		)
	}
}
