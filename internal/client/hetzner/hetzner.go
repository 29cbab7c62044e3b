// Package hetzner asks Hetzner Cloud what the bootstrap needs to know (whether an order can be filled, which image a
// server would start from, which network and servers belong to a cluster, what it costs), and changes there what
// Cluster API does not look after: firewalls, images, and what a destroyed cluster left.
package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	workerRole       = "worker"
)

// ErrToken is wrapped by errors about a token that Hetzner does not take.
var ErrToken = errors.New("Hetzner does not accept the API token: create one with read and write permission in the " +
	"project's Security settings")

// ErrLimit is wrapped by errors about a limit of the project.
var ErrLimit = errors.New("the project's limit is reached: delete what is not needed or have Hetzner raise the " +
	"limit (Console, Limits), then run again")

// explain turns Hetzner's answer about the token into ErrToken, that about a limit into ErrLimit, and leaves other
// errors as they are.
func explain(err error) error {
	if hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) {
		return fmt.Errorf("%w (%w)", ErrLimit, err)
	}
	if hcloud.IsError(err, hcloud.ErrorCodeUnauthorized, hcloud.ErrorCodeForbidden, errTokenReadonly) {
		return fmt.Errorf("%w (%w)", ErrToken, err)
	}
	return err
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

// ofCluster selects what CAPH made for a cluster, in a list.
func ofCluster(cluster string) hcloud.ListOpts {
	return hcloud.ListOpts{LabelSelector: clusterSelector(cluster)}
}

// look goes through the project's resources of a kind.
type look struct {
	kind Kind
	run  func() error
}

// visit has something done with each resource of a kind.
func visit[T any](ctx context.Context, kind Kind, all func(context.Context) ([]T, error), do func(T)) look {
	return look{kind, func() error {
		list, err := all(ctx)
		if err != nil {
			return fmt.Errorf("list the project's %ss: %w", kind, explain(err))
		}
		for _, one := range list {
			do(one)
		}
		return nil
	}}
}

// inTurn looks until one of them fails.
func inTurn(looks ...look) error {
	for _, l := range looks {
		if err := l.run(); err != nil {
			return err
		}
	}
	return nil
}

// finish waits for the actions that a request began; err is the request's.
func finish(ctx context.Context, c *hcloud.Client, err error, actions ...*hcloud.Action) error {
	if err != nil {
		return err
	}
	return c.Action.WaitFor(ctx, actions...)
}

// addressesOf leaves out those that there are not.
func addressesOf(all ...net.IP) (found []netip.Addr) {
	for _, ip := range all {
		if a, ok := netip.AddrFromSlice(ip); ok && !a.IsUnspecified() {
			found = append(found, a.Unmap())
		}
	}
	return found
}

// NetworkID finds the network that CAPH made for a cluster; 0 where there is none.
func NetworkID(ctx context.Context, c *hcloud.Client, cluster string) (int64, error) {
	n, err := network(ctx, c, cluster)
	if err != nil || n == nil {
		return 0, err
	}
	return n.ID, nil
}

// NetworkRanges are the range of addresses of a cluster's network and that of its servers in it, in CIDR notation;
// empty where there is none.
func NetworkRanges(ctx context.Context, c *hcloud.Client, cluster string) (whole, servers string, err error) {
	n, err := network(ctx, c, cluster)
	if err != nil || n == nil {
		return "", "", err
	}
	if n.IPRange != nil {
		whole = n.IPRange.String()
	}
	if len(n.Subnets) == 1 && n.Subnets[0].IPRange != nil { // CAPH creates one
		servers = n.Subnets[0].IPRange.String()
	}
	return whole, servers, nil
}

// network is the network that CAPH made for a cluster; nil: there is none.
func network(ctx context.Context, c *hcloud.Client, cluster string) (*hcloud.Network, error) {
	networks, err := c.Network.AllWithOpts(ctx, hcloud.NetworkListOpts{ListOpts: ofCluster(cluster)})
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for the network of cluster %s: %w", cluster, explain(err))
	case len(networks) == 0:
		return nil, nil
	case len(networks) > 1:
		return nil, fmt.Errorf("%d networks carry the label %s, there must be one: delete those that no server uses",
			len(networks), clusterSelector(cluster))
	}
	return networks[0], nil
}

// Server is a server as far as nodes and Machines are compared with it.
type Server struct {
	ID       int64
	Name     string
	Type     string // "cx33"
	Status   string
	Private  []netip.Addr
	Public   netip.Addr // IPv4; the zero Addr: it has none
	Location string     // "nbg1"
	// Machine is the name of the HCloudMachine that it was made for, and ControlPlane whether for a control plane: CAPH's
	// labels.
	Machine      string
	ControlPlane bool
	Worker       bool // that it was made for a worker
	Protected    bool // from deletion: Hetzner refuses it until a person takes the protection away
	// Image is the name by which CAPH found the snapshot that it was made from; empty: that is not known, because the
	// snapshot has no such label, or is deleted.
	Image string
}

// ProviderID is what the cloud controller manager writes into the Node of the server.
func (s Server) ProviderID() string { return fmt.Sprintf("hcloud://%d", s.ID) }

// ByProviderID keys servers by their provider IDs.
func ByProviderID(servers []Server) map[string]Server {
	keyed := make(map[string]Server, len(servers))
	for _, s := range servers {
		keyed[s.ProviderID()] = s
	}
	return keyed
}

// ServerNames lists the names of servers, with commas.
func ServerNames(servers []Server) string {
	names := make([]string, len(servers))
	for i, s := range servers {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

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
	list, err := c.Server.AllWithOpts(ctx, hcloud.ServerListOpts{ListOpts: ofCluster(cluster)})
	if err != nil {
		return nil, fmt.Errorf("list the servers of cluster %s: %w", cluster, explain(err))
	}
	servers := make([]Server, 0, len(list))
	for _, s := range list {
		server := Server{
			ID: s.ID, Type: typeOf(s.ServerType), Name: s.Name, Status: string(s.Status), Location: placeOf(s.Location),
			Machine: s.Labels[machineLabel], ControlPlane: s.Labels[roleLabel] == controlPlaneRole,
			Worker:    s.Labels[roleLabel] == workerRole,
			Protected: s.Protection.Delete,
		}
		if s.Image != nil {
			server.Image = s.Image.Labels[imageLabel]
		}
		if public := addressesOf(s.PublicNet.IPv4.IP); len(public) > 0 {
			server.Public = public[0]
		}
		for _, n := range s.PrivateNet {
			server.Private = append(server.Private, addressesOf(n.IP)...)
		}
		servers = append(servers, server)
	}
	slices.SortFunc(servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return servers, nil
}
