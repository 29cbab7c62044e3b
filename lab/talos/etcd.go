package talos

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

const (
	// etcdTimeout bounds one question to etcd. It is longer than an election (2.5 s),
	// so that one does not fail a question.
	etcdTimeout = 5 * time.Second
	// healthFirst and healthEvery are the pauses between two looks at a member that
	// has not served yet, and at one that has.
	healthFirst = 100 * time.Millisecond
	healthEvery = 3 * time.Second
	// etcdPause is the time before a service that failed is tried again.
	etcdPause = 2 * time.Second
)

// healthKey is what a health check reads; nothing is there.
const healthKey = "health"

// errLeft is why etcd was stopped on a server that has left the cluster: it stays so until the next boot.
var errLeft = errors.New("this server has left the etcd cluster")

// etcdService runs a control plane server's etcd member: it waits until it is to found a cluster (Bootstrap) or finds
// one to join, and from then on keeps the member running on its data.
type etcdService struct {
	system *system
	ca     *pki.CA
	tls    *tls.Config // of a client
	// url is the member's client URL once it has served; empty before, and after it has left.
	url *watched[string]

	mu        sync.Mutex
	decided   bool                                // there are data, or the member is being started
	bootstrap *watched[*machine.BootstrapRequest] // nil: none was requested
	stop      context.CancelCauseFunc             // ends the member; nil before the service runs
	ended     chan struct{}                       // closed when the service has ended
}

func newEtcdService(y *system) (*etcdService, error) {
	ca, err := parseCA(y.config.Cluster().Etcd().CA())
	if err != nil {
		return nil, fmt.Errorf("cluster.etcd.ca: %w", err)
	}
	pair, err := ca.Issue(pki.Request{CommonName: "talos"})
	if err != nil {
		return nil, err
	}
	cert, err := pair.TLS()
	if err != nil {
		return nil, err
	}
	e := &etcdService{system: y, ca: ca, url: newWatched(""), bootstrap: newWatched[*machine.BootstrapRequest](nil),
		ended: make(chan struct{})}
	e.tls = &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	return e, nil
}

func (e *etcdService) dataDir() string { return e.system.server.etcdDir() }
func (e *etcdService) snapshotFile() string {
	return e.system.server.path("var", "lib", "etcd.snapshot")
}

func (s *server) etcdDir() string { return s.path("var", "lib", "etcd") }

// hasEtcdData says whether the server has an etcd member's data.
func (s *server) hasEtcdData() bool {
	entries, _ := os.ReadDir(s.etcdDir()) // no folder, no data
	return len(entries) > 0
}

func (e *etcdService) hasData() bool { return e.system.server.hasEtcdData() }

// run runs the service until ctx is done or the server leaves the cluster.
func (e *etcdService) run(ctx context.Context) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer close(e.ended)
	e.mu.Lock()
	e.stop = stop
	e.mu.Unlock()

	services := e.system.services
	// Data that is incomplete because the server ended while it was written is left to etcd to judge.
	e.decide(e.hasData())
	for ctx.Err() == nil {
		err := e.runMember(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, errHalfRestored):
			services.fail(serviceEtcd, err)
			<-ctx.Done()
		default:
			services.fail(serviceEtcd, err)
			sleep(ctx, etcdPause)
		}
	}
	e.url.set("")
	services.set(serviceEtcd, stateFinished, "Service finished: "+context.Cause(ctx).Error())
}

// runMember starts the member and keeps it running until ctx is done.
func (e *etcdService) runMember(ctx context.Context) error {
	y := e.system
	address, err := y.await(ctx, y.config.etcdIP, func(reason error) {
		y.services.set(serviceEtcd, stateWaiting, "Waiting for etcd spec: "+reason.Error())
	})
	if err != nil {
		return err
	}
	hosts, _ := y.server.addresses.get()
	pair, err := e.ca.Issue(pki.Request{CommonName: y.hostname, Hosts: sans(hosts,
		[]string{y.hostname, "localhost", "127.0.0.1"})})
	if err != nil {
		return err
	}
	config := plane.EtcdConfig{
		Name: y.hostname, Bin: y.talos.config.Bin, Dir: y.server.path("run", "etcd"), DataDir: e.dataDir(),
		LogFile: y.server.path("log", "etcd.log"), Address: address.String(), CA: e.ca.Cert(), Pair: pair,
		Process: y.name + "/etcd", Labels: y.processLabels(),
	}
	y.services.set(serviceEtcd, statePreparing, "Running pre state")
	if err := e.prepare(ctx, &config); err != nil {
		return err
	}
	member, err := plane.StartEtcd(y.talos.config.Processes, config)
	if err != nil {
		return err
	}
	y.services.set(serviceEtcd, stateRunning, "Started")
	e.watch(ctx, member)
	y.services.set(serviceEtcd, stateStopping, "Stopping")
	stopping, done := ending(ctx)
	defer done()
	return member.Stop(stopping)
}

// watch follows the member's health until ctx is done, and gets it promoted where it is a learner.
func (e *etcdService) watch(ctx context.Context, member *plane.Etcd) {
	y, url := e.system, member.Config().ClientURL()
	for {
		err := e.serveFirst(ctx, url)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			y.services.set(serviceEtcd, stateRunning, "Waiting for its first answer: "+withEnd(err, member).Error())
		}
		if !sleep(ctx, healthFirst) {
			return
		}
	}
	y.log.Info("etcd serves", "url", url)
	y.services.run(serviceEtcd, "Health check successful")
	e.url.set(url)
	for sleep(ctx, healthEvery) {
		err := e.quorum(ctx, url)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			err = withEnd(err, member)
		}
		y.services.health(serviceEtcd, err)
	}
}

// withEnd adds to an error of a member that its process has ended, if it has.
func withEnd(err error, member *plane.Etcd) error {
	n, exit := member.Service().Ends()
	if n == 0 {
		return err
	}
	return fmt.Errorf("%w; its process has ended %d times, last with %s; the end of its log:\n%s", err, n, exit.Reason,
		proc.Tail(member.Service().Log(), 5))
}

// serveFirst succeeds once the member serves as a full member.
func (e *etcdService) serveFirst(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	return e.with(ctx, []string{url}, func(c *clientv3.Client) error {
		st, err := c.Status(ctx, url)
		if err != nil {
			return err
		}
		if st.IsLearner {
			if err := e.promote(ctx, st.Header.MemberId); err != nil {
				return fmt.Errorf("the member is a learner and not promoted yet: %w", err)
			}
		}
		_, err = c.Get(ctx, healthKey)
		return err
	})
}

// quorum runs a request that needs a majority of members.
func (e *etcdService) quorum(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, etcdTimeout)
	defer cancel()
	return e.with(ctx, []string{url}, func(c *clientv3.Client) error {
		_, err := c.Get(ctx, healthKey)
		return err
	})
}

// with runs ask with a client of the given members.
func (e *etcdService) with(ctx context.Context, urls []string, ask func(*clientv3.Client) error) error {
	c, err := clientv3.New(clientv3.Config{
		Context: ctx, Endpoints: urls, TLS: e.tls, DialTimeout: etcdTimeout, Logger: zap.NewNop(),
		MaxUnaryRetries: uint(len(urls)), // each member once: the caller gets the error of the last one
		// By default a member that is just starting would be tried again after a second only.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: healthFirst, Multiplier: 1, MaxDelay: healthFirst},
			MinConnectTimeout: etcdTimeout,
		})},
	})
	if err != nil {
		return fmt.Errorf("create a client for etcd: %w", err)
	}
	defer c.Close()
	return ask(c)
}

// members returns the client URLs of the members that serve: this server's, and those of the others of its cluster.
func (e *etcdService) members() []string {
	var urls []string
	if own, _ := e.url.get(); own != "" {
		urls = append(urls, own)
	}
	return append(urls, e.otherMembers()...)
}

func (e *etcdService) otherMembers() []string {
	var urls []string
	others, _ := e.system.talos.discovery.others(e.system.cluster, e.system.id)
	for _, a := range others {
		if a.etcd != "" {
			urls = append(urls, a.etcd)
		}
	}
	return urls
}

// requestBootstrap has the service found a cluster.
func (e *etcdService) requestBootstrap(r *machine.BootstrapRequest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.decided || e.hasData() {
		return status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}
	if r.RecoverEtcd {
		if _, err := os.Stat(e.snapshotFile()); err != nil {
			return status.Error(codes.FailedPrecondition,
				"no etcd snapshot was uploaded: call EtcdRecover before Bootstrap with recovery")
		}
	}
	e.bootstrap.set(r)
	return nil
}

// leave ends the service permanently and removes its data: the member has been removed.
func (e *etcdService) leave() error {
	e.mu.Lock()
	stop := e.stop
	e.mu.Unlock()
	stop(errLeft)
	<-e.ended
	return os.RemoveAll(e.dataDir())
}
