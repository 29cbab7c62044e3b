package slot

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-k8s/slipway/lab/netns"
)

// takenNetwork is a network in which listening fails as configured; it records the order in which addresses are tried.
type takenNetwork struct {
	netns.Network
	fail  func(addr string) error
	tried []string
}

func (n *takenNetwork) Listen(_ context.Context, addr string) (net.Listener, error) {
	n.tried = append(n.tried, addr)
	if err := n.fail(addr); err != nil {
		return nil, &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", err)}
	}
	return net.Listen("tcp", "127.0.0.1:0") // any will do
}

func TestSlotPlacesEverythingInItsAddresses(t *testing.T) {
	for s := First; s <= Last; s += 2 {
		if !s.Valid() || (s + 1).Valid() {
			t.Fatalf("slot %d: valid is wrong", s)
		}
		services := s.Ranges(0).Service
		parts := []netip.Prefix{services}
		for index := range MostClusters {
			r := s.Ranges(index)
			for name, part := range map[string]netip.Prefix{"control plane": r.ControlPlane, "services": r.Service, "pods": r.Pod} {
				if r.Network.Bits() >= part.Bits() || !r.Network.Contains(part.Addr()) || part != part.Masked() {
					t.Errorf("slot %d: %s %v is not in %v", s, name, part, r.Network)
				}
			}
			if r.Network != s.Ranges(0).Network || r.Service != services {
				t.Errorf("slot %d: cluster %d has another network or other Services: %v", s, index, r)
			}
			for _, part := range []netip.Prefix{r.ControlPlane, r.Pod} {
				for _, other := range parts {
					if part.Overlaps(other) {
						t.Errorf("slot %d: %v of cluster %d overlaps %v", s, part, index, other)
					}
				}
				parts = append(parts, part)
			}
		}
		outside := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(s) + 1}), 16)
		for _, part := range []netip.Prefix{s.PublicServers(), s.PublicLoadBalancers(), s.ManagementServiceCIDR()} {
			if !outside.Contains(part.Addr()) || part != part.Masked() {
				t.Errorf("slot %d: %v is not in %v", s, part, outside)
			}
			if part.Contains(s.ManagementAddress(1)) || part.Contains(s.ManagementAddress(MaxManagement)) {
				t.Errorf("slot %d: a management cluster's address lies in %v", s, part)
			}
			for _, other := range []netip.Prefix{s.PublicServers(), s.PublicLoadBalancers(), s.ManagementServiceCIDR()} {
				if part != other && part.Overlaps(other) {
					t.Errorf("slot %d: %v and %v overlap", s, part, other)
				}
			}
		}
	}
}

func TestClaimSlot(t *testing.T) {
	impatient, cancel := context.WithCancel(t.Context())
	cancel() // no other lab is ending here
	claim := func(n *takenNetwork, had Slot, dir string) (Slot, error) {
		got, l, err := Claim(impatient, n, had, dir, ", or begin anew")
		if l != nil {
			l.Close()
		}
		return got, err
	}
	free := func(string) error { return nil }
	taken := func(string) error { return syscall.EADDRINUSE }

	a, err := claim(&takenNetwork{fail: free}, 0, "/a")
	if err != nil || !a.Valid() {
		t.Fatalf("got %d, %v", a, err)
	}
	if again, err := claim(&takenNetwork{fail: free}, 0, "/a"); err != nil || again != a {
		t.Errorf("the same folder gave %d, then %d (%v)", a, again, err)
	}
	next, err := claim(&takenNetwork{fail: func(addr string) error {
		if addr == a.HetznerAPI() {
			return syscall.EADDRINUSE
		}
		return nil
	}}, 0, "/a")
	if err != nil || next == a || !next.Valid() {
		t.Errorf("with %d taken got %d, %v", a, next, err)
	}
	full := &takenNetwork{fail: taken}
	if _, err := claim(full, 0, "/a"); err == nil || len(full.tried) != 32 {
		t.Errorf("all taken: %v after %d tries, want an error after 32", err, len(full.tried))
	}
	if got, err := claim(&takenNetwork{fail: free}, 80, "/a"); err != nil || got != 80 {
		t.Errorf("a lab that had Slot 80 got %d, %v", got, err)
	}
	if _, err := claim(&takenNetwork{fail: taken}, 80, "/a"); !errors.Is(err, syscall.EADDRINUSE) ||
		!strings.Contains(err.Error(), "http://127.81.0.1:8080/lab names its folder and process; end that one, and run the "+
			"same command again, or begin anew: ") {
		t.Errorf("a lab whose slot is taken: %v", err)
	}
	lacks := func(string) error { return syscall.EADDRNOTAVAIL }
	for _, had := range []Slot{0, First} {
		if _, err := claim(&takenNetwork{fail: lacks}, had, "/a"); err == nil ||
			!strings.Contains(err.Error(), "64.64.{1..16} 65.0.{1..3} ") {
			t.Errorf("no addresses, had %d: %v", had, err)
		}
	}
}
