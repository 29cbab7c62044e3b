package talos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// Config configures all servers of a lab. Fields without a default named here are required.
type Config struct {
	// Dir has one folder for each server: its disk. It contains keys and is created with mode 0700.
	Dir string
	// ClustersDir holds one folder a workload cluster, with the audit logs of its kube-apiservers.
	ClustersDir string
	// SocketDir is the folder of Unix sockets. It must be short: the path of a socket may have 103 bytes.
	SocketDir string
	// Bin is the folder of the upstream programs.
	Bin string
	// Kubernetes are the sets of Kubernetes programs, of which each server chooses by its configuration.
	Kubernetes *programs.Sets
	// Lab is the lab's own binary, for stand-ins in Pods.
	Lab string
	// Processes starts etcd, the control planes and the Pods.
	Processes *proc.Supervisor
	// Listen opens a listening socket on "address:port"; servers have no other way to listen.
	Listen func(ctx context.Context, addr string) (net.Listener, error)
	// Registry is shared by all kubelets of the lab.
	Registry *kubelet.Registry
	// Outages are Services that are not to answer; by default none.
	Outages *egress.Outages
	// Programs maps images to executables, for the Pods of workload clusters.
	Programs []kubelet.Program
	// PodEnv is the environment that every Pod's process gets.
	PodEnv map[string]string
	// Sandboxes gives Pods networks of their own; nil: they share the lab's.
	Sandboxes *sandbox.Runtime
	// Metadata returns what a server reads at 169.254.169.254; its Pods do, where they have networks of their own.
	// Optional.
	Metadata func(serverID int64) http.Handler
	// Latency of simulated operations; the zero value means no delay.
	Latency Latency
	// PoweredOff is called when a server has shut itself down. Optional.
	PoweredOff func(serverID int64)
	// Log, by default none.
	Log *slog.Logger
}

// Latency is how long a server takes to boot, besides the real programs.
type Latency struct {
	Boot    time.Duration // from power on until the machine API answers
	Runtime time.Duration // from then until the container runtime is up, before which Bootstrap is refused
	Kubelet kubelet.Latency
}

// FastLatency keeps a rehearsal short.
func FastLatency() Latency {
	return Latency{Boot: time.Second, Runtime: 200 * time.Millisecond, Kubelet: kubelet.FastLatency()}
}

// RealLatency is near to a small cloud server's: firmware, boot loader, kernel, an address by DHCP. The figures are
// assumed from general experience, not measured for this project.
func RealLatency() Latency {
	return Latency{Boot: 25 * time.Second, Runtime: 8 * time.Second, Kubelet: kubelet.RealLatency()}
}

func (c Config) withDefaults() (Config, error) {
	var missing []error
	require := func(ok bool, field, hint string) {
		if !ok {
			missing = append(missing, fmt.Errorf("%s is missing: %s", field, hint))
		}
	}
	require(filepath.IsAbs(c.Dir), "Dir", "give an absolute path")
	require(filepath.IsAbs(c.ClustersDir), "ClustersDir", "give an absolute path")
	require(filepath.IsAbs(c.SocketDir), "SocketDir", "give the short absolute path of a folder")
	require(filepath.IsAbs(c.Bin), "Bin", "give the absolute path of the folder of programs")
	require(c.Kubernetes != nil, "Kubernetes", "give the sets of Kubernetes programs")
	require(c.Processes != nil, "Processes", "give a supervisor")
	require(c.Listen != nil, "Listen", "give a function that listens")
	require(c.Registry != nil, "Registry", "give the lab's registry")
	if err := errors.Join(missing...); err != nil {
		return c, fmt.Errorf("simulated Talos servers: %w", err)
	}
	if c.PoweredOff == nil {
		c.PoweredOff = func(int64) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Talos runs the servers of one simulated project. It is the lab's cloud.Machine.
type Talos struct {
	config    Config
	discovery *discovery
	starts    chan struct{} // a place for each kube-apiserver that may be starting at once

	mu      sync.Mutex
	servers map[int64]*server
}

var _ cloud.Machine = (*Talos)(nil)

// New returns a Talos without servers.
func New(config Config) (*Talos, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder of the servers: %w", err)
	}
	return &Talos{
		config: config, discovery: newDiscovery(), servers: map[int64]*server{},
		starts: make(chan struct{}, max(1, runtime.NumCPU()/2)),
	}, nil
}

// Start powers a server on: with the disk it had, or a new one. It boots in the background. Starting what runs changes
// nothing.
func (t *Talos) Start(_ context.Context, hardware cloud.Server) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.servers[hardware.ID]; s != nil {
		s.setHardware(hardware)
		s.powerOn()
		return nil
	}
	dir, err := t.disk(hardware.ID)
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(t.config.Dir, strconv.FormatInt(hardware.ID, 10)+"-"+hardware.Name)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the disk of server %s: %w", hardware.Name, err)
	}
	s := newServer(t, hardware, dir)
	t.servers[hardware.ID] = s
	s.powerOn()
	return nil
}

// Stop powers a server off: at once (hard), or after its services have ended in order. Its disk stays.
func (t *Talos) Stop(ctx context.Context, serverID int64, hard bool) error {
	if s := t.server(serverID); s != nil {
		return s.powerOff(ctx, hard)
	}
	return nil
}

// Delete ends a server at once and removes its disk. Its etcd member stays in the
// membership, as that of a real server does.
func (t *Talos) Delete(ctx context.Context, serverID int64) error {
	if s := t.server(serverID); s != nil {
		if err := s.powerOff(ctx, true); err != nil {
			return err
		}
	}
	t.mu.Lock()
	delete(t.servers, serverID)
	t.mu.Unlock()
	dir, err := t.disk(serverID)
	if err != nil || dir == "" {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the disk of server %d: %w", serverID, err)
	}
	return nil
}

// AddressesChanged applies changed addresses to a running server.
func (t *Talos) AddressesChanged(_ context.Context, hardware cloud.Server) error {
	if s := t.server(hardware.ID); s != nil {
		s.setHardware(hardware)
	}
	return nil
}

// Plane returns the ready control plane of a server, else nil.
func (t *Talos) Plane(serverID int64) *plane.Plane {
	s := t.server(serverID)
	if s == nil {
		return nil
	}
	y := s.running()
	if y == nil {
		return nil
	}
	p, _ := y.plane.get()
	return p
}

// Close powers all servers off in order and returns when everything of theirs has ended. Their disks stay.
func (t *Talos) Close(ctx context.Context) error {
	t.mu.Lock()
	servers := slices.Collect(maps.Values(t.servers))
	t.mu.Unlock()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for _, s := range servers {
		wg.Go(func() {
			err := s.powerOff(ctx, false)
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (t *Talos) server(id int64) *server {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.servers[id]
}

// disk finds the folder of a server that was started before, also by a lab before this one; empty: none.
func (t *Talos) disk(id int64) (string, error) {
	found, err := filepath.Glob(filepath.Join(t.config.Dir, strconv.FormatInt(id, 10)+"-*"))
	if err != nil {
		return "", fmt.Errorf("find the disk of server %d: %w", id, err)
	}
	if len(found) == 0 {
		return "", nil
	}
	return found[0], nil
}
