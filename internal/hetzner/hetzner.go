// Package hetzner asks Hetzner Cloud what the bootstrap needs to know (whether an order can be filled, which image a
// server would start from, which network and servers belong to a cluster, what it costs), and changes there what
// Cluster API does not look after: firewalls, images, and what a destroyed cluster left.
package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Labels that CAPH puts on what it makes, and the one that it looks for.
const (
	clusterLabelPrefix = "caph-cluster-"
	clusterLabelValue  = "owned"
	imageLabel         = "caph-image-name"

	// On servers: the name of their HCloudMachine, and what they are for.
	machineLabel     = "machine.caph-name"
	roleLabel        = "machine_type"
	controlPlaneRole = "control_plane"
)

// ErrToken is wrapped by errors about a token that Hetzner does not take.
var ErrToken = errors.New("Hetzner does not accept the API token: create one with read and write permission in the " +
	"project's Security settings")

// explain turns Hetzner's answer about the token into ErrToken and leaves other errors as they are.
func explain(err error) error {
	if hcloud.IsError(err, hcloud.ErrorCodeUnauthorized, hcloud.ErrorCodeForbidden, errTokenReadonly) {
		return fmt.Errorf("%w (%w)", ErrToken, err)
	}
	return err
}

// Unknown is a name that Hetzner does not know, or does not offer where it is wanted.
type Unknown struct {
	What  string // "server type"
	Name  string
	Why   string
	Known []string // what there is instead
}

// Error implements error.
func (e *Unknown) Error() string {
	s := fmt.Sprintf("%s %q %s", e.What, e.Name, e.Why)
	if len(e.Known) > 0 {
		s += ": choose one of " + strings.Join(e.Known, ", ")
	}
	return s
}

// Offer is what Hetzner has of the configured names.
type Offer struct {
	Location         string `json:"location"`
	NetworkZone      string `json:"networkZone"`
	ServerType       string `json:"serverType"`
	Architecture     string `json:"architecture"` // "amd64" or "arm64"
	LoadBalancerType string `json:"loadBalancerType"`
}

// FindOffer asks whether location, server type and load balancer type exist and go together. It is also the cheapest
// proof that the token is good.
func FindOffer(ctx context.Context, c *hcloud.Client, location, serverType, loadBalancerType string) (Offer, error) {
	l, _, err := c.Location.GetByName(ctx, location)
	if err != nil {
		return Offer{}, fmt.Errorf("look up location %s: %w", location, explain(err))
	}
	if l == nil {
		return Offer{}, unknown(ctx, "location", location, c.Location.All, func(l *hcloud.Location) string { return l.Name })
	}
	t, _, err := c.ServerType.GetByName(ctx, serverType)
	if err != nil {
		return Offer{}, fmt.Errorf("look up server type %s: %w", serverType, explain(err))
	}
	if t == nil {
		return Offer{}, unknown(ctx, "server type", serverType, c.ServerType.All,
			func(t *hcloud.ServerType) string { return t.Name })
	}
	if where := soldAt(t); len(where) > 0 && !slices.Contains(where, location) {
		return Offer{}, &Unknown{What: "server type", Name: serverType, Why: "is not sold in " + location +
			"; locations that have it", Known: where}
	}
	lb, _, err := c.LoadBalancerType.GetByName(ctx, loadBalancerType)
	if err != nil {
		return Offer{}, fmt.Errorf("look up load balancer type %s: %w", loadBalancerType, explain(err))
	}
	if lb == nil {
		return Offer{}, unknown(ctx, "load balancer type", loadBalancerType, c.LoadBalancerType.All,
			func(t *hcloud.LoadBalancerType) string { return t.Name })
	}
	return Offer{
		Location: l.Name, NetworkZone: string(l.NetworkZone),
		ServerType: t.Name, Architecture: Architecture(t.Architecture),
		LoadBalancerType: lb.Name,
	}, nil
}

// unknown lists what there is in place of a name; that this fails too is no reason to hide the first finding.
func unknown[T any](ctx context.Context, what, name string, all func(context.Context) ([]T, error),
	nameOf func(T) string) error {
	e := &Unknown{What: what, Name: name, Why: "does not exist at Hetzner"}
	if list, err := all(ctx); err == nil {
		for _, item := range list {
			e.Known = append(e.Known, nameOf(item))
		}
		slices.Sort(e.Known)
	}
	return e
}

// soldAt lists the locations that sell a server type, as its prices tell.
func soldAt(t *hcloud.ServerType) []string {
	var names []string
	for _, p := range t.Pricings {
		if p.Location != nil {
			names = append(names, p.Location.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Architecture is Go's and Talos's name ("amd64") for Hetzner's ("x86").
func Architecture(a hcloud.Architecture) string {
	if a == hcloud.ArchitectureARM {
		return "arm64"
	}
	return "amd64"
}

// hetznerArchitecture is the inverse of Architecture.
func hetznerArchitecture(a string) hcloud.Architecture {
	if a == "arm64" {
		return hcloud.ArchitectureARM
	}
	return hcloud.ArchitectureX86
}

// clusterSelector selects what CAPH made for a cluster.
func clusterSelector(cluster string) string {
	return clusterLabelPrefix + cluster + "==" + clusterLabelValue
}

// NetworkID finds the network that CAPH made for a cluster; 0 where there is none.
func NetworkID(ctx context.Context, c *hcloud.Client, cluster string) (int64, error) {
	opts := hcloud.NetworkListOpts{ListOpts: hcloud.ListOpts{LabelSelector: clusterSelector(cluster)}}
	networks, err := c.Network.AllWithOpts(ctx, opts)
	switch {
	case err != nil:
		return 0, fmt.Errorf("look for the network of cluster %s: %w", cluster, explain(err))
	case len(networks) == 0:
		return 0, nil
	case len(networks) > 1:
		return 0, fmt.Errorf("%d networks carry the label %s, there must be one: delete those that no server uses",
			len(networks), clusterSelector(cluster))
	}
	return networks[0].ID, nil
}

// Server is a server as far as nodes and Machines are compared with it.
type Server struct {
	ID       int64
	Name     string
	Status   string
	Private  []netip.Addr
	Public   netip.Addr // IPv4; the zero Addr: it has none
	Location string     // "nbg1"
	// Machine is the name of the HCloudMachine that it was made for, and ControlPlane whether for a control plane: CAPH's
	// labels.
	Machine      string
	ControlPlane bool
	Protected    bool // from deletion: Hetzner refuses it until a person takes the protection away
}

// ProviderID is what the cloud controller manager writes into the Node of the server.
func (s Server) ProviderID() string { return fmt.Sprintf("hcloud://%d", s.ID) }

// ServerGone reports whether the project has no server with a Node's provider ID. One that is not of Hetzner Cloud is
// an error.
func ServerGone(ctx context.Context, c *hcloud.Client, providerID string) (bool, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(providerID, "hcloud://"), 10, 64)
	if err != nil {
		return false, fmt.Errorf("provider ID %q is none of Hetzner Cloud: %w", providerID, err)
	}
	server, _, err := c.Server.GetByID(ctx, id)
	if err != nil {
		return false, fmt.Errorf("ask for server %d: %w", id, explain(err))
	}
	return server == nil, nil
}

// Servers lists the servers that CAPH made for a cluster, by name.
func Servers(ctx context.Context, c *hcloud.Client, cluster string) ([]Server, error) {
	opts := hcloud.ServerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: clusterSelector(cluster)}}
	list, err := c.Server.AllWithOpts(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("list the servers of cluster %s: %w", cluster, explain(err))
	}
	servers := make([]Server, 0, len(list))
	for _, s := range list {
		server := Server{
			ID: s.ID, Name: s.Name, Status: string(s.Status), Location: placeOf(s.Location),
			Machine: s.Labels[machineLabel], ControlPlane: s.Labels[roleLabel] == controlPlaneRole,
			Protected: s.Protection.Delete,
		}
		if a, ok := netip.AddrFromSlice(s.PublicNet.IPv4.IP); ok && !a.IsUnspecified() {
			server.Public = a.Unmap()
		}
		for _, n := range s.PrivateNet {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				server.Private = append(server.Private, a.Unmap())
			}
		}
		servers = append(servers, server)
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return servers, nil
}
