package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// Config configures a control plane's kube-apiserver, kube-controller-manager and kube-scheduler. All of them bind
// Address.
type Config struct {
	Cluster string // name of the cluster, of its kubeconfig's context
	Bin     string // folder of the programs
	// Folders are those of programs that are not in Bin, by the name of the program.
	Folders map[string]string
	Dir     string // certificates, kubeconfigs, configuration; 0700
	LogDir  string
	Address string   // IP that all three bind
	Port    string   // of the apiserver; empty: APIPort
	SANs    []string // further names and addresses of the apiserver

	Etcd EtcdClient
	CA   *pki.CA // the cluster's authority: issues the apiserver's, its clients', and requested certificates
	// Accepted are the authorities, in PEM, that the apiserver and its clients trust, also CA; empty: CA alone.
	Accepted          []byte
	Aggregator        *pki.CA // the authority of the aggregation layer (front proxy)
	ServiceAccountKey []byte  // private key in PEM
	Issuer            string  // of service account tokens; empty: https://Address:6443

	ServiceCIDR string
	PodCIDR     string // not empty: the controller-manager allots every node a part of it
	// EgressSocket is the Unix socket of the HTTP CONNECT proxy that the apiserver reaches Services, Pods and nodes
	// through; empty: none, it dials them itself. At most 107 bytes.
	EgressSocket string
	// EncryptionConfig is an EncryptionConfiguration in YAML; empty: Secrets are not encrypted in etcd.
	EncryptionConfig []byte
	AuditLog         string // file of the audit log, every write at level Metadata; empty: none
	LeaderElect      bool   // needed where several planes serve one cluster

	Prefix  string // of the processes' names in the status and of their logs, as in "node-1/"
	Labels  map[string]string
	Env     []string // over the defaults
	APIArgs []string // after the lab's own; later flags win
	// ControllerManagerArgs and SchedulerArgs likewise.
	ControllerManagerArgs, SchedulerArgs []string
}

// EtcdClient is how the kube-apiserver reaches etcd.
type EtcdClient struct {
	Endpoints []string // https URLs
	CA        []byte   // PEM
	Pair      pki.Pair
}

// Plane is a running control plane.
type Plane struct {
	cfg    Config
	files  files
	health *http.Client // asks for readiness, with a certificate: anonymous requests may be off

	api, controllers, scheduler *proc.Service
}

// Start starts the kube-apiserver, waits until it is ready, and starts the controller-manager and the scheduler; Ready
// waits for those. All three are restarted when they end, until Stop. If Start fails, it ends what it started.
func Start(ctx context.Context, super *proc.Supervisor, cfg Config) (_ *Plane, err error) {
	if cfg.Issuer == "" {
		cfg.Issuer = Endpoint(cfg.Address, cfg.Port)
	}
	p := &Plane{cfg: cfg}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the control plane of cluster %s on %s: %w", cfg.Cluster, cfg.Address, err)
			// ctx may be what failed.
			err = errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
		}
	}()
	if p.files, err = cfg.write(); err != nil {
		return nil, err
	}
	probe, err := cfg.CA.Issue(pki.Request{CommonName: "system:lab-health"})
	if err != nil {
		return nil, err
	}
	if p.health, err = probeClient(cfg.CA.Cert(), probe); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.LogDir, 0o700); err != nil {
		return nil, err
	}
	if p.api, err = super.Keep(p.spec("kube-apiserver", p.apiArgs())); err != nil {
		return nil, err
	}
	if err := p.awaitAPI(ctx); err != nil {
		return nil, err
	}
	// Not earlier: they would take the processor from the apiserver that they wait for.
	if p.controllers, err = super.Keep(p.spec("kube-controller-manager", p.controllerManagerArgs())); err != nil {
		return nil, err
	}
	if p.scheduler, err = super.Keep(p.spec("kube-scheduler", p.schedulerArgs())); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plane) spec(program string, args []string) proc.Spec {
	return proc.Spec{
		Name:    p.cfg.Prefix + program,
		Path:    filepath.Join(cmp.Or(p.cfg.Folders[program], p.cfg.Bin), program),
		Args:    args,
		Env:     slices.Concat(environment(), collector(), p.cfg.Env),
		Dir:     p.cfg.Dir,
		LogFile: filepath.Join(p.cfg.LogDir, program+".log"),
		Labels:  p.cfg.Labels,
	}
}

// collector has Go's garbage collector run less often while a program starts, which takes a sixth of the processor time
// off an apiserver's, and as often as ever once it holds much.
func collector() []string { return []string{"GOGC=400", "GOMEMLIMIT=400MiB"} }

// environment of the plane's programs: they need none of the daemon's.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "TMPDIR=" + os.TempDir()}
}

// Endpoint is the URL of an apiserver that binds an address and port; an empty port is APIPort.
func Endpoint(address, port string) string {
	return "https://" + net.JoinHostPort(address, cmp.Or(port, APIPort))
}

// CA is the cluster's authority that issues certificates.
func (p *Plane) CA() *pki.CA { return p.cfg.CA }

// Endpoint returns the URL of the kube-apiserver itself.
func (p *Plane) Endpoint() string { return Endpoint(p.cfg.Address, p.cfg.Port) }

func (p *Plane) awaitAPI(ctx context.Context) error {
	return await(ctx, p.api, func(ctx context.Context) error {
		return probe(ctx, p.health, p.Endpoint()+"/readyz?verbose")
	})
}

// Ready waits until all three are ready.
func (p *Plane) Ready(ctx context.Context) error {
	if err := p.awaitAPI(ctx); err != nil {
		return err
	}
	for service, port := range map[*proc.Service]string{p.controllers: controllerManagerPort, p.scheduler: schedulerPort} {
		err := await(ctx, service, func(ctx context.Context) error {
			return probe(ctx, p.health, "https://"+net.JoinHostPort(p.cfg.Address, port)+"/healthz")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RestartAPI ends the apiserver and starts it again, as the upgrade of a static Pod
// would. It does not wait until it is ready.
func (p *Plane) RestartAPI(ctx context.Context) error { return p.api.Restart(ctx, apiGrace) }

// HoldAPI kills the kube-apiserver and does not start it again until release is called.
func (p *Plane) HoldAPI(ctx context.Context) (release func(), err error) { return p.api.Hold(ctx, 0) }

// FreezeAPI has the apiserver accept connections and not answer, until thaw is called.
func (p *Plane) FreezeAPI() (thaw func()) { return p.api.Freeze() }

// AwaitAPI waits until the apiserver is ready, however often it has ended.
func (p *Plane) AwaitAPI(ctx context.Context) error {
	for {
		before, _ := p.api.Ends()
		err := p.awaitAPI(ctx)
		after, _ := p.api.Ends()
		if err == nil || after == before || ctx.Err() != nil {
			return err
		}
	}
}

// apiGrace is short: clients retry the requests that a kube-apiserver would finish in a minute.
const apiGrace = 2 * time.Second

// Stop ends all three, the apiserver last.
func (p *Plane) Stop(ctx context.Context) error {
	var errs []error
	for _, service := range []*proc.Service{p.scheduler, p.controllers, p.api} {
		if service != nil {
			errs = append(errs, service.Stop(ctx, apiGrace))
		}
	}
	return errors.Join(errs...)
}
