// Package hccm stands in for hcloud-cloud-controller-manager v1.29.2, which can take its place. Like the original it
// runs the node and node lifecycle controllers of k8s.io/cloud-provider with the Hetzner Cloud API: a Node with the
// taint "uninitialized" gets its provider ID, addresses and labels from its server and loses the taint; a Node whose
// server does not exist is deleted, one whose server is off is tainted. It takes the original's flags and environment:
// HCLOUD_TOKEN, HCLOUD_ENDPOINT, HCLOUD_NETWORK, HCLOUD_INSTANCES_ADDRESS_FAMILY, HCLOUD_DEBUG, and HTTPS_PROXY and
// SSL_CERT_FILE through Go's default HTTP client.
//
// Not simulated, and logged if requested: load balancers for Services, routes (HCLOUD_NETWORK_ROUTES_ENABLED), Robot,
// and the check against the metadata service that the network is attached (HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK). It
// has the metrics of the library on the secure port, and not those of the original on port 8233.
package hccm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/cloud-provider/names"
	"k8s.io/klog/v2"

	"github.com/slipway-k8s/slipway/lab/standin/ccm"
)

const (
	// startTimeout bounds the questions to the API at start.
	startTimeout = time.Minute
	// tokenLength is that of a real token; the original refuses others.
	tokenLength = 64
)

// Run is the program: it takes the original's flags and works until ctx ends.
func Run(ctx context.Context, args []string) error {
	provider, err := newProvider(ctx)
	if err != nil {
		return err
	}
	controllers := ccm.NodeControllers()
	controllers[names.ServiceLBController] = ccm.NotSimulated(names.ServiceLBController,
		"Services of type LoadBalancer stay without an address")
	controllers[names.NodeRouteController] = ccm.NotSimulated(names.NodeRouteController,
		"no routes to Pods are created in the Hetzner network")
	return ccm.Run(ctx, args, provider.ProviderName(), provider, controllers)
}

// newProvider reads the environment, and verifies that the API accepts the token and has the network.
func newProvider(ctx context.Context) (*provider, error) {
	token := os.Getenv("HCLOUD_TOKEN")
	if token == "" {
		return nil, errors.New(`environment variable "HCLOUD_TOKEN" is required`)
	}
	if len(token) != tokenLength {
		klog.Warningf("HCLOUD_TOKEN has %d characters; a real token has %d, and the original refuses others", len(token),
			tokenLength)
	}
	for _, name := range []string{"ROBOT_ENABLED", "HCLOUD_NETWORK_ROUTES_ENABLED"} {
		if on, _ := strconv.ParseBool(os.Getenv(name)); on {
			klog.Infof("%s is set, but not simulated", name)
		}
	}
	p := &provider{addressFamily: ipv4}
	switch family := addressFamily(os.Getenv("HCLOUD_INSTANCES_ADDRESS_FAMILY")); family {
	case "":
	case ipv4, ipv6, dualStack:
		p.addressFamily = family
	default:
		return nil, fmt.Errorf("environment variable HCLOUD_INSTANCES_ADDRESS_FAMILY=%q: want ipv4, ipv6 or dualstack",
			family)
	}

	opts := []hcloud.ClientOption{hcloud.WithToken(token), hcloud.WithApplication("hcloud-cloud-controller",
		"v1.29.2-stand-in")}
	if endpoint := os.Getenv("HCLOUD_ENDPOINT"); endpoint != "" {
		opts = append(opts, hcloud.WithEndpoint(endpoint))
	}
	if debug, _ := strconv.ParseBool(os.Getenv("HCLOUD_DEBUG")); debug {
		opts = append(opts, hcloud.WithDebugWriter(os.Stderr)) // the client masks the token
	}
	p.client = hcloud.NewClient(opts...)

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if network, given := os.LookupEnv("HCLOUD_NETWORK"); given {
		found, _, err := p.client.Network.Get(ctx, network)
		if err != nil {
			return nil, fmt.Errorf("asking the Hetzner API for network %q (HCLOUD_NETWORK): %w", network, err)
		}
		if found == nil {
			return nil, fmt.Errorf("network %q (HCLOUD_NETWORK) does not exist", network)
		}
		p.networkID = found.ID
		klog.Infof("Network %s has ID %d; whether this Node is attached to it is not checked (no metadata service)",
			found.Name, found.ID)
	} else {
		klog.Info("HCLOUD_NETWORK is not set: Nodes get no internal address")
	}
	if _, _, err := p.client.Location.List(ctx, hcloud.LocationListOpts{}); err != nil {
		return nil, fmt.Errorf("checking the token against the Hetzner API: %w", err)
	}
	return p, nil
}

// Rules are the permissions that its service account needs.
func Rules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services/status"}, Verbs: []string{"patch", "update"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"},
			Verbs: []string{"get", "list", "update", "watch"}},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"create", "get", "list", "watch", "update"}},
	}
}
