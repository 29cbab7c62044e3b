package talos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"

	"github.com/slipway-k8s/slipway/lab/cloud"
)

// Why a run of a server's system ends.
var (
	errReboot   = errors.New("it reboots")
	errHalt     = errors.New("it has shut itself down")
	errShutdown = errors.New("it was asked to shut down")
	errPowerOff = errors.New("the power was cut")
)

// server is one simulated server: a disk, addresses, and, while it is powered on, a system that runs.
type server struct {
	talos     *Talos
	dir       string // the disk
	addresses *watched[[]netip.Addr]

	mu       sync.Mutex
	hardware cloud.Server
	system   *system                 // of the present run, or the last one
	end      context.CancelCauseFunc // ends the present run
	off      chan struct{}           // closed when the server is off; nil before it was ever on
	turnOff  bool                    // the present run is the last one
}

func newServer(t *Talos, hardware cloud.Server, dir string) *server {
	return &server{talos: t, dir: dir, hardware: hardware, addresses: newWatched(addressesOf(hardware))}
}

// addressesOf returns a server's IPv4 addresses, private ones first. An IPv6 address of a lab answers nowhere.
func addressesOf(hardware cloud.Server) []netip.Addr {
	var addrs []netip.Addr
	for _, p := range hardware.Private {
		addrs = append(addrs, p.IP)
	}
	if hardware.PublicIPv4.IsValid() {
		addrs = append(addrs, hardware.PublicIPv4)
	}
	return addrs
}

// runsTalos says whether an image is one of Talos, by its labels and its description.
func runsTalos(image cloud.Image) bool {
	words := []string{image.Name, image.Description, image.OSFlavor}
	for key, value := range image.Labels {
		words = append(words, key, value)
	}
	return strings.Contains(strings.ToLower(strings.Join(words, " ")), "talos")
}

func (s *server) setHardware(hardware cloud.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hardware = hardware
	s.addresses.set(addressesOf(hardware))
}

// publicIP is the server's public address; zero: none.
func (s *server) publicIP() netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hardware.PublicIPv4
}

func (s *server) path(name ...string) string {
	return filepath.Join(append([]string{s.dir}, name...)...)
}

// powerOn boots the server, unless it is on.
func (s *server) powerOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isOn() {
		return
	}
	s.off, s.turnOff = make(chan struct{}), false
	go s.run(s.boot())
}

// isOn says whether the server is on. The caller holds s.mu.
func (s *server) isOn() bool {
	if s.off == nil {
		return false
	}
	select {
	case <-s.off:
		return false
	default:
		return true
	}
}

// boot prepares a run. The caller holds s.mu.
func (s *server) boot() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	s.end = end
	s.system = newSystem(s, s.hardware, end)
	return ctx
}

// run runs one system after the other until one of them is not to be followed by another.
func (s *server) run(ctx context.Context) {
	for {
		s.mu.Lock()
		system, hardware := s.system, s.hardware
		s.mu.Unlock()
		system.run(ctx)
		cause := context.Cause(ctx)
		s.talos.config.Log.Info("a server's system has ended", "server", hardware.Name, "reason", cause)

		s.mu.Lock()
		if errors.Is(cause, errReboot) && !s.turnOff {
			ctx = s.boot()
			s.mu.Unlock()
			continue
		}
		close(s.off)
		s.mu.Unlock()
		if errors.Is(cause, errHalt) {
			s.talos.config.PoweredOff(hardware.ID)
		}
		return
	}
}

// powerOff ends the present run and waits until nothing of it is left.
func (s *server) powerOff(ctx context.Context, hard bool) error {
	cause := errShutdown
	if hard {
		cause = errPowerOff
	}
	s.mu.Lock()
	if !s.isOn() {
		s.mu.Unlock()
		return nil
	}
	s.turnOff = true
	s.end(cause)
	name, off := s.hardware.Name, s.off
	s.mu.Unlock()
	select {
	case <-off:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("power server %s off: %w", name, ctx.Err())
	}
}
