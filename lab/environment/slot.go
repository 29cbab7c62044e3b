package environment

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"syscall"

	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/rescue"
)

// slot is the lab's part of 127.0.0.0/8: two neighbouring /16. The even one is the simulated cloud's private network,
// the odd one everything else. Slots separate the labs of one host, also those without a network namespace.
type slot int

const (
	firstSlot slot = 64
	lastSlot  slot = 126
)

func (s slot) valid() bool { return firstSlot <= s && s <= lastSlot && s%2 == 0 }

// The private network and its parts, with the sizes and offsets of the defaults for the real cloud (10.10.0.0/16).
func (s slot) networkCIDR() netip.Prefix      { return prefix(int(s), 0, 0, 16) }
func (s slot) controlPlaneCIDR() netip.Prefix { return prefix(int(s), 64, 0, 25) }
func (s slot) serviceCIDR() netip.Prefix      { return prefix(int(s), 96, 0, 20) }
func (s slot) podCIDR() netip.Prefix          { return prefix(int(s), 128, 0, 17) }

// Addresses outside of the private network.
func (s slot) hetznerAPI() string   { return s.outside(0, 1, 8080) }
func (s slot) hetznerProxy() string { return s.outside(0, 1, 8443) }
func (s slot) charts() string       { return s.outside(0, 2, 8081) }
func (s slot) sshProbe() string     { return s.outside(0, 3, rescue.Port) }
func (s slot) managementAddress(index int) netip.Addr {
	return prefix(int(s)+1, 1, byte(index), 32).Addr()
}
func (s slot) publicLoadBalancers() netip.Prefix   { return prefix(int(s)+1, 2, 0, 24) }
func (s slot) publicServers() netip.Prefix         { return prefix(int(s)+1, 4, 0, 22) }
func (s slot) managementServiceCIDR() netip.Prefix { return prefix(int(s)+1, 96, 0, 20) }
func (s slot) outside(third, last byte, port uint16) string {
	return netip.AddrPortFrom(prefix(int(s)+1, third, last, 32).Addr(), port).String()
}

// maxManagement is the maximum number of management clusters with an address: the last octet, from 1 on.
const maxManagement = 254

func prefix(second int, third, last byte, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(second), third, last}), bits)
}

// claimSlot finds a free slot by listening at its API address, which stays reserved as long as the lab listens. A lab
// that had a slot needs the same one, because its clusters' certificates and kubeconfigs name its addresses. A new lab
// starts its search at a slot derived from its folder, so that labs that do not run at the same time mostly have
// different slots.
func claimSlot(ctx context.Context, network netns.Network, had slot, dir string) (slot, net.Listener, error) {
	if had != 0 {
		var l net.Listener
		err := retryWhileEnding(ctx, syscall.EADDRINUSE, func() (err error) {
			l, err = network.Listen(ctx, had.hetznerAPI())
			return err
		})
		if errors.Is(err, syscall.EADDRINUSE) {
			return 0, nil,
				fmt.Errorf("this lab's addresses (127.%d.0.0 to 127.%d.255.255) are in use, probably by another lab that was "+
					"started meanwhile: stop that one, or remove %s to begin a new lab: %w",
					had, had+1, dir, err)
		}
		return had, l, had.explainAddress(err)
	}
	h := fnv.New32a()
	h.Write([]byte(dir)) // never fails
	slots := uint32(lastSlot-firstSlot)/2 + 1
	var lacking error
	for i := range slots {
		s := firstSlot + 2*slot((h.Sum32()+i)%slots)
		l, err := network.Listen(ctx, s.hetznerAPI())
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
		return 0, nil, fmt.Errorf("find addresses for the lab: %w", firstSlot.explainAddress(lacking))
	}
	return 0, nil,
		fmt.Errorf("find addresses for the lab: all %d slots between 127.%d.0.0 and 127.%d.255.255 are in use; "+
			"stop another lab", slots, firstSlot, lastSlot+1)
}
