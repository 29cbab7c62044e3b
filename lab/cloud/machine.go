package cloud

import (
	"context"
	"net/netip"
	"time"
)

// Machine is what servers are made of. Its methods are called one at a time for each server, never
// for two states of the same server at once, and never while the Cloud holds a lock: they may call
// back into the Cloud.
type Machine interface {
	// Start powers the server on. It returns when the machine runs; the boot continues in the background.
	Start(ctx context.Context, server Server) error
	// Stop powers the server off: by pulling the plug (hard), or by asking its system to shut down.
	// Stopping a machine that is off is no error.
	Stop(ctx context.Context, serverID int64, hard bool) error
	// Delete destroys the machine and its disk. Deleting an unknown machine is no error.
	Delete(ctx context.Context, serverID int64) error
	// AddressesChanged notifies a running machine that it was attached to a network or detached.
	AddressesChanged(ctx context.Context, server Server) error
}

// Server is a server as its Machine and the lab's status see it.
type Server struct {
	ID     int64             `json:"id"`
	Name   string            `json:"name"`
	Status string            `json:"status"` // the API's: initializing, starting, running, stopping, off, deleting, …
	Labels map[string]string `json:"labels"`

	Type         string    `json:"type"`         // server type, e.g. cx33
	Architecture string    `json:"architecture"` // x86 or arm
	Location     string    `json:"location"`     // e.g. nbg1
	Datacenter   string    `json:"datacenter"`   // e.g. nbg1-dc3
	Image        Image     `json:"image"`
	Rescue       bool      `json:"rescue"` // the next boot goes into the rescue system
	RescueKeys   []string  `json:"-"`      // public keys that may log in to it, in OpenSSH form
	Created      time.Time `json:"created"`

	PublicIPv4 netip.Addr       `json:"publicIPv4,omitzero"` // zero: none
	PublicIPv6 netip.Prefix     `json:"publicIPv6,omitzero"` // a /64; zero: none
	Private    []PrivateAddress `json:"private"`

	// UserData is what the server was created with. It may hold a cluster's keys: it is never part
	// of JSON, logs or errors.
	UserData string `json:"-"`
}

// PrivateIP is the server's address in the first network that it is attached to; zero if none.
func (s Server) PrivateIP() netip.Addr {
	if len(s.Private) == 0 {
		return netip.Addr{}
	}
	return s.Private[0].IP
}

// PrivateAddress is a server's or load balancer's place in a network.
type PrivateAddress struct {
	Network int64        `json:"network"`
	IP      netip.Addr   `json:"ip"`
	Aliases []netip.Addr `json:"aliases,omitempty"`
}

// Image is the image that a server was created from.
type Image struct {
	ID          int64             `json:"id"`
	Name        string            `json:"name,omitempty"` // empty for snapshots
	Description string            `json:"description"`
	OSFlavor    string            `json:"osFlavor"`
	Labels      map[string]string `json:"labels"`
}

// LoadBalancer is a load balancer as the lab's status shows it.
type LoadBalancer struct {
	ID         int64             `json:"id"`
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels"`
	Location   string            `json:"location"`
	PublicIPv4 netip.Addr        `json:"publicIPv4,omitzero"` // zero: the public interface is off
	PrivateIP  netip.Addr        `json:"privateIP,omitzero"`  // zero: not attached to a network
	Services   []Service         `json:"services"`
}

// Service is one port of a load balancer.
type Service struct {
	ListenPort      int  `json:"listenPort"`
	DestinationPort int  `json:"destinationPort"`
	Listening       bool `json:"listening"` // false while no target is healthy: connections are refused
	Healthy         int  `json:"healthy"`   // targets that pass the health check
	Targets         int  `json:"targets"`
}
