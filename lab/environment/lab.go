package environment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/egress"
	"github.com/slipway-k8s/slipway/lab/folder"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/management"
	"github.com/slipway-k8s/slipway/lab/netns"
	"github.com/slipway-k8s/slipway/lab/originals"
	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/proc"
	"github.com/slipway-k8s/slipway/lab/programs"
	"github.com/slipway-k8s/slipway/lab/rescue"
	"github.com/slipway-k8s/slipway/lab/sandbox"
	"github.com/slipway-k8s/slipway/lab/slot"
	"github.com/slipway-k8s/slipway/lab/talos"
)

// Config configures a lab.
type Config struct {
	Dir        string            // the lab's folder; all its files are in it
	Bin        string            // folder of the upstream programs
	Kubernetes []programs.Given  // programs of Kubernetes, the first one that is used where no version is asked for
	Core       []programs.Given  // programs of Cluster API's core, likewise; none: those in Bin, as of Kubernetes
	Lab        string            // the lab's own binary, for stand-ins in Pods
	Flux       string            // folder of the programs of Flux's controllers, which need not exist; empty: none
	Gitea      string            // folder of Gitea's program, which need not exist; empty: none
	Latency    Latency           // how long simulated operations take
	API        cloud.API         // date of the simulated Hetzner API; empty: the newest
	Images     []kubelet.Program // programs for images, before the built-in ones
	// Originals are released programs with their manifests and charts, in the place of stand-ins.
	Originals originals.Set
	Network   netns.Network
	Log       *slog.Logger
}

const (
	// stopDeadline bounds an orderly stop; then the rest is killed.
	stopDeadline = 12 * time.Second
	// replyDeadline bounds the wait until clients have read the last responses.
	replyDeadline = 3 * time.Second
	// headerDeadline bounds how long a client may take to send its request.
	headerDeadline = 10 * time.Second
)

// Lab is a running lab.
type Lab struct {
	cfg       Config
	started   time.Time
	state     *folder.State
	sockets   string // folder of the Unix sockets
	token     string // of the simulated Hetzner project
	readOnly  string // another token of it, with which nothing can be changed
	ca        *pki.CA
	processes *proc.Supervisor
	registry  *kubelet.Registry
	programs  []kubelet.Program
	outages   *egress.Outages
	// sandboxes gives Pods networks of their own; nil: they share the lab's, for the reason in shared.
	sandboxes *sandbox.Runtime
	shared    string
	faults    *faults

	offer       repositoryOffer
	flux        fluxOffer
	realGitea   atomic.Bool // Gitea itself runs, not the stand-in
	git         gitOffer
	cloud       *cloud.Cloud
	talos       *talos.Talos
	rescue      *rescue.Rescue
	imageBuild  ImageBuild
	managements *management.Clusters
	programInfo []programs.Program // of the upstream programs
	kubernetes  *programs.Sets
	core        *programs.Sets
	held        *folder.Held // the folders of programs, until the lab has ended

	stopOnce sync.Once
	stopping chan struct{} // closed when the lab begins to end
	stopErr  error
	endOnce  sync.Once
	down     chan struct{} // closed when a command has ended the lab
}

// Run runs the lab until ctx is done or a command ends it, and returns when everything that it started has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return err
	}
	syscall.Umask(0o077) // also for the files of the lab's programs
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("create the lab's folder: %w", err)
	}
	if err := os.Chmod(cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("restrict the lab's folder to its user: %w", err)
	}
	unlock, err := folder.Lock(ctx, filepath.Join(cfg.Dir, "lab.lock"), cfg.Network.PID())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()

	held := &folder.Held{}
	defer func() { err = errors.Join(err, held.Release()) }()
	if err := held.Hold(cfg.Bin); err != nil {
		return err
	}
	upstream, err := programs.Read(cfg.Bin, programNames...)
	if err != nil {
		return err
	}
	lab := &Lab{cfg: cfg, kubernetes: programs.NewSets(programs.Kubernetes()), core: programs.NewSets(programs.Core()),
		held: held, started: time.Now(), processes: proc.New(), registry: kubelet.NewRegistry(),
		outages: egress.NewOutages(), programInfo: upstream, stopping: make(chan struct{}), down: make(chan struct{})}
	if err := lab.kubernetes.AddAll(cfg.Kubernetes, cfg.Bin, held.Hold); err != nil {
		return err
	}
	if err := lab.core.AddAll(cfg.Core, cfg.Bin, held.Hold); err != nil {
		return err
	}
	lab.faults = newFaults(lab)
	lab.tryApart()
	if lab.sandboxes == nil { // their ports and paths are fixed
		lab.cfg.Originals = cfg.Originals.Without("the released program needs a network of its own, which Pods here do " +
			"not have: " + lab.shared)
	}
	for _, o := range lab.cfg.Originals.All() {
		if err := held.Hold(o.Dir); err != nil {
			return err
		}
	}
	for _, file := range kubelet.Files(cfg.Images) {
		if err := held.Hold(file); err != nil {
			return err
		}
	}
	lab.programs = append(lab.programs, cfg.Images...)
	if cfg.Flux != "" {
		lab.programs = append(lab.programs, kubelet.FluxPrograms(cfg.Flux)...)
	}
	if cfg.Gitea != "" {
		lab.programs = append(lab.programs, kubelet.GiteaProgram(cfg.Gitea, lab.realGitea.Load))
	}
	lab.programs = append(lab.programs, kubelet.CommandProgram(lab.path("command", "slipway"), lab.path("repository")))
	lab.programs = append(lab.programs, lab.cfg.Originals.Programs(kubelet.DefaultPrograms(lab.core))...)
	// After an error, too, no process survives the lab.
	defer func() { err = errors.Join(err, lab.processes.StopAll(context.WithoutCancel(ctx), 0)) }()
	return lab.run(ctx)
}

func (lab *Lab) run(ctx context.Context) (err error) {
	if lab.sockets, err = folder.Sockets(lab.cfg.Dir); err != nil {
		return err
	}
	if lab.state, err = folder.LoadState(lab.path("state.json")); err != nil {
		return fmt.Errorf("%w; remove %s to begin a new lab", err, lab.cfg.Dir)
	}
	if lab.token, err = ensureToken(lab.path("token")); err != nil {
		return fmt.Errorf("the simulated project's token: %w", err)
	}
	if lab.readOnly, err = ensureToken(lab.path("read-only-token")); err != nil {
		return fmt.Errorf("the simulated project's token for reading alone: %w", err)
	}
	if lab.ca, err = pki.EnsureCA(lab.path("pki"), "ca", "Slipway lab"); err != nil {
		return fmt.Errorf("the lab's certificate authority: %w", err)
	}
	taken, api, err := slot.Claim(ctx, lab.cfg.Network, lab.state.Slot(), lab.cfg.Dir,
		fmt.Sprintf(", or remove %s to begin a new lab", lab.cfg.Dir))
	if err != nil {
		return err
	}
	defer api.Close()
	if err := lab.state.Update(func(d *folder.Data) error { d.Slot = taken; return nil }); err != nil {
		return err
	}

	if err := lab.resumeGitea(); err != nil { // before Pods start
		return err
	}

	// The parts outlive ctx: stop ends them in order.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	lab.managements = management.New(life, management.Config{
		Dir: lab.cfg.Dir, Sockets: lab.sockets, Bin: lab.cfg.Bin, Kubernetes: lab.kubernetes, Lab: lab.cfg.Lab,
		ProviderID: "lab://",
		Network:    lab.cfg.Network, State: lab.state, Processes: lab.processes, Registry: lab.registry, Outages: lab.outages,
		Sandboxes: lab.sandboxes, Programs: lab.programs, PodEnv: lab.podEnv(), Latency: lab.cfg.Latency.kubelet(),
		BeforePods: lab.awaitServed, Log: lab.cfg.Log,
	})
	// After an error, too: servers and Pods end in order.
	defer func() { err = errors.Join(err, lab.stop()) }()
	if err := lab.startCloud(life, api); err != nil {
		return err
	}
	lab.managements.Resume()
	if err := lab.offerRepository(life); err != nil {
		return err
	}

	if err := lab.startGit(life); err != nil {
		return err
	}
	if err := lab.resumeFlux(life); err != nil {
		return err
	}

	lab.settle(ctx)

	// Last, so that the lab is complete when it answers.
	control, err := folder.ListenControl(lab.sockets)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: lab.handler(), ReadHeaderTimeout: headerDeadline}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(control) }) // ended by Close
	defer serving.Wait()
	defer server.Close()
	if short := shortage(len(lab.processes.List())); short != "" {
		lab.cfg.Log.Warn(short)
	}
	lab.cfg.Log.Info("the lab is up", "dir", lab.cfg.Dir, "slot", int(taken), "isolation", lab.cfg.Network.Isolation())

	select {
	case <-ctx.Done():
		return nil
	case <-lab.down: // the response has been sent
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), replyDeadline)
		defer cancel()
		return server.Shutdown(ctx)
	}
}

// tryApart finds out whether Pods can have networks of their own.
func (lab *Lab) tryApart() {
	if !lab.cfg.Network.Own() {
		lab.shared = "the lab has no network namespace of its own"
		return
	}
	var err error
	if lab.sandboxes, err = sandbox.New(); err != nil {
		lab.shared = err.Error()
		lab.cfg.Log.Warn("Pods share the lab's network and see all files of the user", "reason", err)
	}
}

// stop ends everything that the lab runs, once, in order as far as stopDeadline allows.
func (lab *Lab) stop() error {
	lab.stopOnce.Do(func() {
		close(lab.stopping)
		lab.stopErr = lab.stopParts()
	})
	return lab.stopErr
}

func (lab *Lab) stopParts() error {
	lab.cfg.Log.Info("the lab ends")
	lab.faults.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopDeadline)
	defer cancel()
	var (
		parts           sync.WaitGroup
		cloud, clusters error
	)
	parts.Go(func() { cloud = lab.stopCloud(ctx) })
	parts.Go(func() { clusters = lab.managements.Stop(ctx) })
	parts.Wait()
	return errors.Join(cloud, clusters, lab.processes.StopAll(ctx, time.Second), folder.RemoveSockets(lab.cfg.Dir, lab.sockets))
}

// serve answers requests until ctx is done.
func (lab *Lab) serve(ctx context.Context, l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: headerDeadline,
		ErrorLog: slog.NewLogLogger(lab.cfg.Log.Handler(),
			slog.LevelWarn)}
	context.AfterFunc(ctx, func() { server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			lab.cfg.Log.Error("a server ended", "address", l.Addr().String(), "reason", err)
		}
	}()
}

func (lab *Lab) path(parts ...string) string {
	return filepath.Join(append([]string{lab.cfg.Dir}, parts...)...)
}
