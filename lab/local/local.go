// Package local runs the management cluster of a launch on this machine, without a container engine: etcd, Kubernetes'
// control plane and the controllers of Cluster API are processes, in a user, network and PID namespace of their own.
// The only way out is a proxy to the Hetzner API and to the APIs of the clusters that are managed.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/lab/control"
	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/management"
	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
	"github.com/slipway-k8s/slipway/lab/sandbox"
	"github.com/slipway-k8s/slipway/lab/slot"
)

// Config configures the daemon.
type Config struct {
	Dir string // its folder; all files are in it
	Bin string // folder of the upstream programs
	// Kubernetes and Core are programs of Kubernetes and of Cluster API's core; none: those in Bin.
	Kubernetes, Core []programs.Given
	// Programs runs for images, besides kubelet.UpstreamPrograms. A Pod of any other image does not start.
	Programs []kubelet.Program
	// StandIns makes a mapping with stand-ins of the built-in one; nil: there are none.
	StandIns func([]kubelet.Program) []kubelet.Program
	// Lab is the lab's own binary, for stand-ins among the programs; empty: there are none.
	Lab     string
	PodEnv  map[string]string // environment of every Pod, besides the proxy
	Network netns.Network
	Log     *slog.Logger
}

const (
	// apiPort is not that of workload clusters, whose port of every loopback address is forwarded.
	apiPort = "6444"
	// stopDeadline bounds an orderly stop; then the rest is killed.
	stopDeadline = 12 * time.Second
	// replyDeadline bounds the wait until clients have read the last responses.
	replyDeadline = 3 * time.Second
)

// Info is what the daemon says of itself.
type Info struct {
	PID       int       `json:"pid"` // the process to signal
	StartedAt time.Time `json:"startedAt"`
	Isolation string    `json:"isolation"`
	Listeners []string  `json:"listeners"` // addresses on the host's loopback
	Clusters  []string  `json:"clusters"`
	// KubernetesSets are the versions of Kubernetes that it has, CoreSets those of Cluster API's core.
	KubernetesSets []programs.Description `json:"kubernetesSets"`
	CoreSets       []programs.Description `json:"coreSets"`
}

// daemon runs management clusters.
type daemon struct {
	cfg       Config
	started   time.Time
	sockets   string
	processes *proc.Supervisor
	clusters  *management.Clusters

	mapping          []kubelet.Program // besides kubelet.UpstreamPrograms
	kubernetes, core *programs.Sets
	held             *folder.Held // the folders of programs, until the daemon has ended

	endOnce  sync.Once
	down     chan struct{} // closed when a command has ended the daemon
	stopOnce sync.Once
	stopErr  error
}

// Run runs the management clusters of a folder until ctx is done or a command ends it, and returns when everything that
// it started has ended. Their data stay, and the next Run continues them.
func Run(ctx context.Context, cfg Config) (err error) {
	syscall.Umask(0o077) // also for the files of the programs
	if !cfg.Network.Own() {
		return fmt.Errorf("run a local management cluster: it needs a network namespace of its own, and has the %s",
			cfg.Network.Isolation())
	}
	sandboxes, err := sandbox.New()
	if err != nil {
		return fmt.Errorf("run a local management cluster: its Pods need networks and mounts of their own: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("create the folder of the management cluster: %w", err)
	}
	unlock, err := folder.Lock(ctx, filepath.Join(cfg.Dir, "daemon.lock"), cfg.Network.PID())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	held := &folder.Held{}
	defer func() { err = errors.Join(err, held.Release()) }()
	d := &daemon{cfg: cfg, started: time.Now(), processes: proc.New(), down: make(chan struct{}), held: held,
		kubernetes: programs.NewSets(programs.Kubernetes()), core: programs.NewSets(programs.Core())}
	d.mapping = slices.Clone(cfg.Programs)
	if cfg.StandIns != nil {
		d.mapping = append(d.mapping, cfg.StandIns(kubelet.DefaultPrograms(d.core))...)
	}
	for _, file := range append(kubelet.Files(d.mapping), cfg.Bin) {
		if err := held.Hold(file); err != nil {
			return err
		}
	}
	if err := d.kubernetes.AddAll(cfg.Kubernetes, cfg.Bin, held.Hold); err != nil {
		return err
	}
	if err := d.core.AddAll(cfg.Core, cfg.Bin, held.Hold); err != nil {
		return err
	}
	// After an error, too, no process survives the daemon.
	defer func() { err = errors.Join(err, d.processes.StopAll(context.WithoutCancel(ctx), 0)) }()
	return d.run(ctx, sandboxes)
}

func (d *daemon) run(ctx context.Context, sandboxes *sandbox.Runtime) (err error) {
	cfg := d.cfg
	if d.sockets, err = folder.Sockets(cfg.Dir); err != nil {
		return err
	}
	state, err := folder.LoadState(filepath.Join(cfg.Dir, "state.json"))
	if err != nil {
		return err
	}
	taken, held, err := slot.Claim(ctx, cfg.Network, state.Slot(), cfg.Dir,
		". The state of this management cluster stays; its certificates name these addresses")
	if err != nil {
		return err
	}
	defer held.Close()
	if err := state.Update(func(s *folder.Data) error { s.Slot = taken; return nil }); err != nil {
		return err
	}
	holder := &http.Server{Handler: folder.HolderHandler(cfg.Dir, cfg.Network.PID()), ReadHeaderTimeout: headerTime}
	defer holder.Close()
	go func() { _ = holder.Serve(held) }() // ended by Close

	// In this network alone: no process of the host can use it.
	var config net.ListenConfig
	proxyListener, err := config.Listen(ctx, "tcp4", taken.HetznerProxy())
	if err != nil {
		return fmt.Errorf("serve the proxy: %w", err)
	}
	defer proxyListener.Close()
	env := map[string]string{"HTTPS_PROXY": "http://" + proxyListener.Addr().String()}
	for name, value := range cfg.PodEnv {
		env[name] = value
	}

	// The clusters outlive ctx: stop ends them in order.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	d.clusters = management.New(life, management.Config{
		Dir: cfg.Dir, Sockets: d.sockets, Bin: cfg.Bin, Lab: cfg.Lab, ProviderID: "local://", APIPort: apiPort, Durable: true,
		Network: cfg.Network, State: state, Processes: d.processes, Registry: kubelet.NewRegistry(),
		Outages: egress.NewOutages(), Sandboxes: sandboxes,
		Programs: append(d.mapping, kubelet.UpstreamPrograms(d.core)...), RefuseUnmapped: true, Kubernetes: d.kubernetes,
		PodEnv: env, Latency: kubelet.Latency{Restart: time.Second, RestartMost: time.Minute}, Log: cfg.Log,
	})
	p := &proxy{dial: cfg.Network.Dial, log: cfg.Log, refusals: map[string]string{},
		hosts: func(ctx context.Context) (map[string]bool, error) { return hostsOf(ctx, d.clusters) }}
	stopProxy, err := p.serve(ctx, proxyListener)
	if err != nil {
		return err
	}
	defer stopProxy()
	defer func() { err = errors.Join(err, d.stop()) }()
	d.clusters.Resume()

	socket, err := folder.ListenControl(d.sockets)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.handler(), ReadHeaderTimeout: headerTime}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(socket) }) // ended by Close
	defer serving.Wait()
	defer server.Close()
	cfg.Log.Info("the daemon is up", "dir", cfg.Dir, "slot", int(taken), "isolation", cfg.Network.Isolation())
	select {
	case <-ctx.Done():
		return nil
	case <-d.down: // the response has been sent
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyDeadline)
		defer cancel()
		return server.Shutdown(ctx)
	}
}

// stop ends everything, once, in order as far as stopDeadline allows.
func (d *daemon) stop() error {
	d.stopOnce.Do(func() {
		d.cfg.Log.Info("the daemon ends")
		ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
		defer cancel()
		d.stopErr = errors.Join(d.clusters.Stop(ctx), d.processes.StopAll(ctx, time.Second),
			folder.RemoveSockets(d.cfg.Dir, d.sockets))
	})
	return d.stopErr
}

// handler is the control API. It has no authorization: the socket is in a folder that only the user can open.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	control.Handle(mux, "GET /v1/info", func(*http.Request) (any, error) { return d.info(), nil })
	d.clusters.Serve(mux)
	control.Handle(mux, "PUT /v1/kubernetes", d.serve(d.kubernetes))
	control.Handle(mux, "PUT /v1/core", d.serve(d.core))
	control.Handle(mux, "POST /v1/down", func(*http.Request) (any, error) {
		defer d.endOnce.Do(func() { close(d.down) })
		return struct{}{}, d.stop()
	})
	return mux
}

// serve adds programs to the running daemon.
func (d *daemon) serve(sets *programs.Sets) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var given programs.Given
		err := json.NewDecoder(r.Body).Decode(&given)
		if err == nil {
			err = d.held.Hold(given.Bin)
		}
		if err == nil {
			err = sets.Add(given.For, given.Bin)
		}
		if err != nil {
			return nil, control.BadRequest(err)
		}
		return d.info(), nil
	}
}

func (d *daemon) info() Info {
	info := Info{PID: d.cfg.Network.PID(), StartedAt: d.started, Isolation: d.cfg.Network.Isolation(),
		Listeners: d.cfg.Network.Listeners(), Clusters: []string{},
		KubernetesSets: d.kubernetes.Describe(), CoreSets: d.core.Describe()}
	for _, c := range d.clusters.List() {
		info.Clusters = append(info.Clusters, c.Name())
	}
	return info
}
