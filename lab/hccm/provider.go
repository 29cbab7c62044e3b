package hccm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const (
	providerIDPrefix = "hcloud://"
	providedByLabel  = "instance.hetzner.cloud/provided-by"
)

// errServerNotFound is returned for a Node without a server.
var errServerNotFound = errors.New("server not found")

// provider is Hetzner Cloud, as the node controllers see it.
type provider struct {
	client        *hcloud.Client
	networkID     int64 // 0: none, Nodes get no internal address
	addressFamily addressFamily
}

type addressFamily string

const (
	ipv4      addressFamily = "ipv4"
	ipv6      addressFamily = "ipv6"
	dualStack addressFamily = "dualstack"
)

var (
	_ cloudprovider.Interface   = (*provider)(nil)
	_ cloudprovider.InstancesV2 = (*provider)(nil)
)

// The parts of a cloud provider that are not simulated, or that the original does not have.
func (p *provider) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (p *provider) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (p *provider) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (p *provider) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (p *provider) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (p *provider) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (p *provider) HasClusterID() bool                                                { return false }

// ProviderName implements cloudprovider.Interface.
func (p *provider) ProviderName() string { return "hcloud" }

// InstancesV2 implements cloudprovider.Interface.
func (p *provider) InstancesV2() (cloudprovider.InstancesV2, bool) { return p, true }

// server finds a Node's server: by provider ID if the Node has one, else by name. It is nil if there is none.
func (p *provider) server(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	if node.Spec.ProviderID == "" {
		server, _, err := p.client.Server.GetByName(ctx, node.Name)
		if err != nil {
			return nil, fmt.Errorf("failed to get hcloud server %q: %w", node.Name, err)
		}
		return server, nil
	}
	digits, ok := strings.CutPrefix(node.Spec.ProviderID, providerIDPrefix)
	id, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("node %s: provider ID %q is not hcloud://<number> (Robot servers are not simulated)",
			node.Name, node.Spec.ProviderID)
	}
	server, _, err := p.client.Server.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("failed to get hcloud server %d: %w", id, err)
	}
	return server, nil
}

// existing is server, with its absence an error.
func (p *provider) existing(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	server, err := p.server(ctx, node)
	if err == nil && server == nil {
		err = fmt.Errorf("no matching server found for node %q (provider ID %q): %w", node.Name, node.Spec.ProviderID,
			errServerNotFound)
	}
	return server, err
}

// InstanceExists implements cloudprovider.InstancesV2: false makes the lifecycle controller delete the Node.
func (p *provider) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := p.server(ctx, node)
	return server != nil, err
}

// InstanceShutdown implements cloudprovider.InstancesV2: true makes the lifecycle controller taint the Node.
func (p *provider) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := p.existing(ctx, node)
	if err != nil {
		return false, err
	}
	return server.Status == hcloud.ServerStatusOff, nil
}

// InstanceMetadata implements cloudprovider.InstancesV2: provider ID, type, addresses and place of a Node's server.
func (p *provider) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	server, err := p.existing(ctx, node)
	if err != nil {
		return nil, err
	}
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID:       providerIDPrefix + strconv.FormatInt(server.ID, 10),
		InstanceType:     server.ServerType.Name,
		NodeAddresses:    p.addresses(server),
		AdditionalLabels: map[string]string{providedByLabel: "cloud"},
	}
	if server.Location != nil {
		metadata.Region = server.Location.Name
		metadata.Zone = datacenters[server.Location.Name]
	}
	return metadata, nil
}

// datacenters are the zones of Hetzner's locations. The original at v1.29.2 reads them from server.datacenter, which
// the API has dropped and this client no longer reads; later ones know them by heart, too.
var datacenters = map[string]string{
	"fsn1": "fsn1-dc14", "nbg1": "nbg1-dc3", "hel1": "hel1-dc2", "ash": "ash-dc1", "hil": "hil-dc1", "sin": "sin-dc1",
}

// addresses are a server's: its name, the public ones of the wanted family, and the one in the cluster's network.
func (p *provider) addresses(server *hcloud.Server) []corev1.NodeAddress {
	list := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: server.Name}}
	if p.addressFamily != ipv6 && !server.PublicNet.IPv4.IsUnspecified() {
		list = append(list, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: server.PublicNet.IPv4.IP.String()})
	}
	if p.addressFamily != ipv4 && !server.PublicNet.IPv6.IsUnspecified() {
		// The server has the first address of its /64.
		first := slices.Clone(server.PublicNet.IPv6.IP)
		first[len(first)-1] |= 1
		list = append(list, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: first.String()})
	}
	for _, private := range server.PrivateNet {
		if p.networkID != 0 && private.Network.ID == p.networkID {
			list = append(list, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: private.IP.String()})
		}
	}
	return list
}
