package talos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/lab/pki"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/tunnel"
)

// planePause is the time between two tries to start a control plane that does not come up.
const planePause = 3 * time.Second

// errAuthorities is why a control plane ends that is started again with other certificates.
var errAuthorities = errors.New("the cluster's authorities have changed")

// runPlane runs kube-apiserver, kube-controller-manager and kube-scheduler whenever the server's etcd member serves,
// until ctx is done.
func (y *system) runPlane(ctx context.Context) {
	for ctx.Err() == nil {
		y.setAPIServer("waiting for etcd")
		url, err := y.etcd.url.await(ctx, func(url string) bool { return url != "" })
		if err != nil {
			return
		}
		if err := y.servePlane(ctx, url); err != nil && ctx.Err() == nil {
			y.setAPIServer("failed, tried again: " + err.Error())
			sleep(ctx, planePause)
		}
	}
}

// servePlane runs the control plane on the etcd member at url until ctx is done, that member has left, or the cluster's
// authorities have changed: the three programs read theirs at their start.
func (y *system) servePlane(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started, _ := y.authorities.get()
	authority := started.cluster
	go func() {
		others := func(now authorities) bool { return !now.cluster.equal(authority) }
		if _, err := y.authorities.await(ctx, others); err == nil {
			y.setAPIServer("restarting: " + errAuthorities.Error())
			cancel(errAuthorities)
		}
	}()
	go func() {
		if _, err := y.etcd.url.await(ctx, func(now string) bool { return now != url }); err == nil {
			cancel(errLeft)
		}
	}()
	config, err := y.planeConfig(url, authority)
	if err != nil {
		return err
	}
	egress, err := y.serveEgress(ctx)
	if err != nil {
		return err
	}
	defer func() { // the next one has the same socket
		cancel(nil)
		<-egress.ended
	}()
	config.EgressSocket = egress.socket

	y.setAPIServer("waiting for its turn to start")
	done := y.talos.awaitTurn(ctx)
	y.setAPIServer("starting")
	p, err := plane.Start(ctx, y.talos.config.Processes, config)
	done()
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errAuthorities):
		return nil // it is no failure: the next one starts at once
	case err != nil:
		return err
	}
	admin, err := y.adminOf(p)
	if err != nil {
		return errors.Join(err, p.Stop(ctx))
	}
	y.setAPIServer("ready")
	y.plane.set(p)
	var helpers sync.WaitGroup
	for _, help := range []func(context.Context){
		func(ctx context.Context) { y.serveOtherAddresses(ctx, p) },
		func(ctx context.Context) { egress.follow(ctx, y, admin) },
		func(ctx context.Context) { y.applyManifests(ctx, admin) },
		func(ctx context.Context) { y.serveServiceAccounts(ctx, admin) },
	} {
		helpers.Go(func() { help(ctx) })
	}
	<-ctx.Done()

	y.plane.set(nil)
	helpers.Wait()
	stopping, stopped := ending(ctx)
	defer stopped()
	return p.Stop(stopping)
}

// turnTime is how long a kube-apiserver waits for others that are starting: far longer than one takes.
const turnTime = 20 * time.Second

// awaitTurn waits until few enough kube-apiservers are starting; done ends the turn. A start keeps a core busy for
// three seconds: on two cores, three at once are all ready after eight; one after the other, the first is ready after
// three, and the bootstrap waits for the first.
func (t *Talos) awaitTurn(ctx context.Context) (done func()) {
	timer := time.NewTimer(turnTime)
	defer timer.Stop()
	select {
	case t.starts <- struct{}{}:
		return func() { <-t.starts }
	case <-timer.C: // the one before it may never become ready
	case <-ctx.Done():
	}
	return func() {}
}

// adminOf is the access of Talos itself to a kube-apiserver.
func (y *system) adminOf(p *plane.Plane) (*rest.Config, error) {
	kubeconfig, err := p.Kubeconfig("system:talos", "system:masters")
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

// planeConfig is the control plane that the machine configuration describes.
func (y *system) planeConfig(etcdURL string, authority authority) (plane.Config, error) {
	cluster := y.config.Cluster()
	aggregator, err := parseCA(cluster.AggregatorCA())
	if err != nil {
		return plane.Config{}, fmt.Errorf("cluster.aggregatorCA: %w", err)
	}
	if cluster.ServiceAccount() == nil {
		return plane.Config{}, fmt.Errorf("cluster.serviceAccount: the machine configuration has no key")
	}
	etcdClient, err := y.etcd.ca.Issue(pki.Request{CommonName: "kube-apiserver"})
	if err != nil {
		return plane.Config{}, err
	}
	addresses, _ := y.server.addresses.get()
	address, err := y.config.nodeIP(addresses)
	if err != nil { // the kubelet waits for one; a real kube-apiserver listens everywhere and does not care
		if address, err = y.config.etcdIP(addresses); err != nil {
			return plane.Config{}, err
		}
	}
	names, err := y.config.apiServerSANs(y.hostname, addresses)
	if err != nil {
		return plane.Config{}, err
	}
	kubernetes, err := y.chooseKubernetes()
	if err != nil {
		return plane.Config{}, err
	}
	dir := y.server.path("run", "control-plane")
	apiArgs, dropped, err := y.config.apiServerArgs(dir)
	if err != nil {
		return plane.Config{}, err
	}
	y.note("oidc", dropped)
	return plane.Config{
		Cluster: cluster.Name(), Bin: y.talos.config.Bin, Folders: kubernetes, Dir: dir, LogDir: y.server.path("log"),
		Address: address.String(), SANs: names,
		Etcd: plane.EtcdClient{Endpoints: []string{etcdURL}, CA: y.etcd.ca.Cert(), Pair: etcdClient},
		CA:   authority.issuing, Accepted: authority.accepted, Aggregator: aggregator,
		ServiceAccountKey: cluster.ServiceAccount().Key, Issuer: cluster.Endpoint().String(),
		ServiceCIDR:      commaJoined(cluster.Network().ServiceCIDRs()),
		PodCIDR:          commaJoined(cluster.Network().PodCIDRs()),
		EncryptionConfig: y.config.encryptionConfig(),
		AuditLog:         filepath.Join(y.talos.config.ClustersDir, cluster.Name(), "audit-"+y.name+".jsonl"),
		LeaderElect:      true,
		Prefix:           y.name + "/", Labels: y.processLabels(),
		APIArgs: apiArgs,
		ControllerManagerArgs: append(leaderElection(), flags(cluster.ControllerManager().ExtraArgs(),
			labControllerFlags)...),
		SchedulerArgs: append(leaderElection(), flags(cluster.Scheduler().ExtraArgs(), labControllerFlags)...),
	}, nil
}

// leaderElection lets another server take over two seconds after the leader's lease has expired, 12 seconds after the
// leader has ended: with the defaults (15 s) every rollout of a rehearsal takes longer. The leader has 10 s to renew,
// as by default: on two busy cores it may need them.
func leaderElection() []string {
	return []string{"--leader-elect-lease-duration=12s", "--leader-elect-renew-deadline=10s",
		"--leader-elect-retry-period=2s"}
}

// serveOtherAddresses has the kube-apiserver answer on the server's other addresses
// too, as one that listens everywhere does.
func (y *system) serveOtherAddresses(ctx context.Context, p *plane.Plane) {
	own := hostPort(p)
	listen := func(ctx context.Context, addr string) (net.Listener, error) {
		if addr == own {
			return closedListener{}, nil // the kube-apiserver's own socket
		}
		return y.talos.config.Listen(ctx, addr)
	}
	serveOnAddresses(ctx, y.server.addresses, constants.DefaultControlPlanePort, listen, func(l net.Listener) {
		tunnel.Serve(ctx, l, func(ctx context.Context) (net.Conn, error) { return dial(ctx, own) })
	}, func(problem error) {
		text := ""
		if problem != nil {
			text = "the kube-apiserver is not served on all addresses: " + problem.Error()
		}
		y.note("kube-apiserver addresses", text)
	})
}
