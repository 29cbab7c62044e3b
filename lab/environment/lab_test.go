package environment

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
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
	for s := firstSlot; s <= lastSlot; s += 2 {
		if !s.valid() || (s + 1).valid() {
			t.Fatalf("slot %d: valid is wrong", s)
		}
		private := s.networkCIDR()
		for name, part := range map[string]netip.Prefix{"control plane": s.controlPlaneCIDR(), "services": s.serviceCIDR(),
			"pods": s.podCIDR()} {
			if private.Bits() >= part.Bits() || !private.Contains(part.Addr()) || part != part.Masked() {
				t.Errorf("slot %d: %s %v is not in %v", s, name, part, private)
			}
		}
		outside := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(s) + 1}), 16)
		for _, part := range []netip.Prefix{s.publicServers(), s.publicLoadBalancers(), s.managementServiceCIDR()} {
			if !outside.Contains(part.Addr()) || part != part.Masked() {
				t.Errorf("slot %d: %v is not in %v", s, part, outside)
			}
			if part.Contains(s.managementAddress(1)) || part.Contains(s.managementAddress(maxManagement)) {
				t.Errorf("slot %d: a management cluster's address lies in %v", s, part)
			}
			for _, other := range []netip.Prefix{s.publicServers(), s.publicLoadBalancers(), s.managementServiceCIDR()} {
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
	claim := func(n *takenNetwork, had slot, dir string) (slot, error) {
		got, l, err := claimSlot(impatient, n, had, dir)
		if l != nil {
			l.Close()
		}
		return got, err
	}
	free := func(string) error { return nil }
	taken := func(string) error { return syscall.EADDRINUSE }

	a, err := claim(&takenNetwork{fail: free}, 0, "/a")
	if err != nil || !a.valid() {
		t.Fatalf("got %d, %v", a, err)
	}
	if again, err := claim(&takenNetwork{fail: free}, 0, "/a"); err != nil || again != a {
		t.Errorf("the same folder gave %d, then %d (%v)", a, again, err)
	}
	next, err := claim(&takenNetwork{fail: func(addr string) error {
		if addr == a.hetznerAPI() {
			return syscall.EADDRINUSE
		}
		return nil
	}}, 0, "/a")
	if err != nil || next == a || !next.valid() {
		t.Errorf("with %d taken got %d, %v", a, next, err)
	}
	full := &takenNetwork{fail: taken}
	if _, err := claim(full, 0, "/a"); err == nil || len(full.tried) != 32 {
		t.Errorf("all taken: %v after %d tries, want an error after 32", err, len(full.tried))
	}
	if got, err := claim(&takenNetwork{fail: free}, 80, "/a"); err != nil || got != 80 {
		t.Errorf("a lab that had slot 80 got %d, %v", got, err)
	}
	if _, err := claim(&takenNetwork{fail: taken}, 80, "/a"); !errors.Is(err, syscall.EADDRINUSE) ||
		!strings.Contains(err.Error(), "another lab") {
		t.Errorf("a lab whose slot is taken: %v", err)
	}
	lacks := func(string) error { return syscall.EADDRNOTAVAIL }
	for _, had := range []slot{0, firstSlot} {
		if _, err := claim(&takenNetwork{fail: lacks}, had, "/a"); err == nil ||
			!strings.Contains(err.Error(), "64.64.{1..16} 65.0.{1..3} ") {
			t.Errorf("no addresses, had %d: %v", had, err)
		}
	}
}

func TestStateIsKeptAndChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	s, err := loadState(path)
	if err != nil {
		t.Fatal(err)
	}
	err = s.update(func(d *stateData) error {
		d.Slot, d.Management = 70, append(d.Management, managementSpec{"m", 1})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.update(func(d *stateData) error { d.Slot = 72; return io.EOF }); !errors.Is(err, io.EOF) ||
		s.slot() != 70 {
		t.Errorf("a change that fails: %v, slot %d", err, s.slot())
	}
	again, err := loadState(path)
	if err != nil || again.slot() != 70 || len(again.management()) != 1 ||
		again.management()[0] != (managementSpec{"m", 1}) {
		t.Errorf("read back: %+v, %v", again, err)
	}
	for _, bad := range []string{"{", `{"version":2,"slot":70}`, `{"version":1,"slot":71}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadState(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestTokenIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := ensureToken(path)
	if err != nil || len(first) != 64 {
		t.Fatalf("%d characters, %v", len(first), err)
	}
	if second, err := ensureToken(path); err != nil || second != first {
		t.Errorf("another token: %v", err)
	}
}

func TestSocketsOfADeepFolder(t *testing.T) {
	shallow, err := socketDir("/tmp/lab")
	if err != nil || shallow != "/tmp/lab" {
		t.Errorf("a short path: %s, %v", shallow, err)
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 20))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sockets, err := socketDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	if len(sockets)+1+longestSocket > maxSocketPath || !ownFolder(sockets) {
		t.Errorf("sockets go to %s", sockets)
	}
	l, err := listenControl(sockets)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if found, err := findSocket(dir); err != nil || found != l.Addr().String() {
		t.Errorf("found %s, %v, want %s", found, err, l.Addr())
	}
	if again, err := socketDir(dir); err != nil || again != sockets {
		t.Errorf("at the next start sockets go to %s, %v", again, err)
	}
	// A folder that other users may enter is not used for sockets, even if an older lab created it.
	if err := os.Chmod(sockets, 0o755); err != nil {
		t.Fatal(err)
	}
	other, err := socketDir(dir)
	if err != nil || other == sockets {
		t.Errorf("an open folder is used again: %v", err)
	}
	if err := removeSocketDir(dir, other); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", other, err)
	}
	if found, err := findSocket(dir); err != nil || found != filepath.Join(dir, controlSocket) {
		t.Errorf("found %s, %v", found, err)
	}
}

func TestLockFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lockFolder(t.Context(), path, 123)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockFolder(impatient, path, 456); err == nil || !strings.Contains(err.Error(), "process 123") {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = lockFolder(t.Context(), path, 456); err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}
