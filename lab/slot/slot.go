// Package slot divides 127.0.0.0/8 among the labs, and local management clusters, of one machine, also of those
// without a network namespace.
package slot

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/rescue"
)

// Slot is the lab's part of 127.0.0.0/8: two neighbouring /16. The even one is the simulated cloud's private network,
// the odd one everything else. Slots separate the labs of one host, also those without a network namespace.
type Slot int

// First and Last are the numbers of slots; the even ones between are slots too.
const (
	First Slot = 64
	Last  Slot = 126
)

// Valid says whether a number is one of a slot.
func (s Slot) Valid() bool { return First <= s && s <= Last && s%2 == 0 }

// Ranges are the address ranges of a cluster. Those of two clusters of a lab have no server's and no Pod's address in
// common.
type Ranges struct {
	Network      netip.Prefix // the private network
	ControlPlane netip.Prefix // the subnet of servers
	Service      netip.Prefix // the Services: an address of them is no process's
	Pod          netip.Prefix
}

// MostClusters is how many clusters a lab has ranges for.
const MostClusters = 11

// Ranges are those of a cluster, by its index from 0. The network and the first cluster's parts of it have the sizes
// and offsets of the defaults for the real cloud (10.10.0.0/16); the others have the rest of it, with Pods of 8 nodes
// each.
func (s Slot) Ranges(index int) Ranges {
	r := Ranges{Network: prefix(int(s), 0, 0, 16), ControlPlane: prefix(int(s), byte(64+index), 0, 25),
		Service: prefix(int(s), 96, 0, 20), Pod: prefix(int(s), 128, 0, 17)}
	const below, each = 8, 8 // of them lie below the subnets, the others behind the Services; third octets of each
	switch {
	case index == 0:
	case index <= below:
		r.Pod = prefix(int(s), byte((index-1)*each), 0, 21)
	default:
		r.Pod = prefix(int(s), byte(112+(index-1-below)*each), 0, 21)
	}
	return r
}

// HetznerAPI is the address of the simulated API, by which a slot is claimed. It and the following lie outside of the
// private network.
func (s Slot) HetznerAPI() string { return s.outside(0, 1, 8080) }

// HetznerProxy is the address of the proxy to that API, or to the real one.
func (s Slot) HetznerProxy() string { return s.outside(0, 1, 8443) }

// Charts is the address of the chart repository.
func (s Slot) Charts() string { return s.outside(0, 2, 8081) }

// Git is the address of the Git server.
func (s Slot) Git() string { return s.outside(0, 2, 8082) }

// SSHProbe is an address to find out whether rescue systems can listen.
func (s Slot) SSHProbe() string { return s.outside(0, 3, rescue.Port) }

// ManagementAddress is the address of a management cluster, 1 to MaxManagement.
func (s Slot) ManagementAddress(index int) netip.Addr {
	return prefix(int(s)+1, 1, byte(index), 32).Addr()
}

// PublicLoadBalancers is the range of public addresses of load balancers.
func (s Slot) PublicLoadBalancers() netip.Prefix { return prefix(int(s)+1, 2, 0, 24) }

// PublicServers is the range of public addresses of servers.
func (s Slot) PublicServers() netip.Prefix { return prefix(int(s)+1, 4, 0, 22) }

// ManagementServiceCIDR is the range of Services of management clusters.
func (s Slot) ManagementServiceCIDR() netip.Prefix { return prefix(int(s)+1, 96, 0, 20) }

func (s Slot) outside(third, last byte, port uint16) string {
	return netip.AddrPortFrom(prefix(int(s)+1, third, last, 32).Addr(), port).String()
}

// MaxManagement is the maximum number of management clusters with an address: the last octet, from 1 on.
const MaxManagement = 254

func prefix(second int, third, last byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(second), third, last}), bits)
}

// Claim finds a free slot by listening at its API address, which stays reserved as long as the lab listens. A lab
// that had a slot needs the same one, because its clusters' certificates and kubeconfigs name its addresses. A new lab
// starts its search at a slot derived from its folder, so that labs that do not run at the same time mostly have
// different slots. anew ends the sentence that tells what to do where another process has them: what else is possible.
func Claim(ctx context.Context, network netns.Network, had Slot, dir, anew string) (Slot, net.Listener, error) {
	if had != 0 {
		var l net.Listener
		err := proc.RetryWhileEnding(ctx, syscall.EADDRINUSE, func() (err error) {
			l, err = network.Listen(ctx, had.HetznerAPI())
			return err
		})
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil,
				fmt.Errorf("the addresses of %s (127.%d.0.0 to 127.%d.255.255) are in use, probably by another lab or "+
					"management cluster that was started meanwhile: http://%s/lab names its folder and process; end that one, "+
					"and run the same command again%s: %w", dir, had, had+1, had.HetznerAPI(), anew, err)
		}
		return had, l, had.explainAddress(err)
	}
	h := fnv.New32a()
	h.Write([]byte(dir)) // never fails
	slots := uint32(Last-First)/2 + 1
	var lacking error
	for i := range slots {
		s := First + 2*Slot((h.Sum32()+i)%slots)
		l, err := network.Listen(ctx, s.HetznerAPI())
		if err == nil {
			return s, l, nil
		}
		if errors.Is(err, syscall.EADDRNOTAVAIL) {
			lacking = err // the slot may belong to another lab
			continue
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil, fmt.Errorf("find addresses for the lab: %w", err)
		}
	}
	if lacking != nil {
		return 0, nil, fmt.Errorf("find addresses for the lab: %w", First.explainAddress(lacking))
	}
	return 0, nil,
		fmt.Errorf("find addresses for the lab: all %d slots between 127.%d.0.0 and 127.%d.255.255 are in use; "+
			"stop another lab", slots, First, Last+1)
}
