package talos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"

	"github.com/slipway-k8s/slipway/lab/cloud"
	"github.com/slipway-k8s/slipway/lab/kubelet"
	"github.com/slipway-k8s/slipway/lab/plane"
	"github.com/slipway-k8s/slipway/lab/proc"
)

// defaultVersion is reported where the image's name has no version: the one of the guide's version matrix.
const defaultVersion = "v1.12.2"

// Phases of a system, as the status shows them.
const (
	PhaseBooting     = "booting" // until the configuration is read
	PhaseRunning     = "running" // its services run, or are on their way
	phaseOff         = "off"
	phaseMaintenance = "maintenance"
	phaseForeign     = "not Talos"
)

// system is one run of a server's operating system, from power on to power off.
type system struct {
	talos    *Talos
	server   *server
	id       int64
	name     string // the server's
	version  string
	foreign  string // why the image is not Talos; empty: it is
	userData string
	end      context.CancelCauseFunc
	log      *slog.Logger

	// Set by start, before the phase is PhaseRunning for the first time; constant from then on. Of the configuration
	// only the authorities change in a run: whoever needs them reads them from authorities.
	config      machineConfig // as it was at the boot
	authorities *watched[authorities]
	applied     *configuration // of the present
	hostname    string
	cluster     string // key in discovery
	services    *services
	events      *eventLog
	etcd        *etcdService                    // nil on a worker
	plane       *watched[*plane.Plane]          // nil while no kube-apiserver of this server is ready
	kubelet     atomic.Pointer[kubelet.Kubelet] // nil while none runs

	runtimeUp atomic.Bool // the container runtime is up
	wipe      atomic.Bool // the EPHEMERAL partition is to be wiped when the system has ended

	mu         sync.Mutex
	phase      string
	reason     string
	apiServer  string            // state of the control plane
	kubernetes string            // version of its programs
	notes      map[string]string // differences from the configuration, by topic
}

func newSystem(s *server, hardware cloud.Server, end context.CancelCauseFunc) *system {
	y := &system{
		talos: s.talos, server: s, id: hardware.ID, name: hardware.Name, userData: hardware.UserData, end: end,
		version: installedVersion(s, versionOf(hardware.Image.Description+" "+hardware.Image.Labels["caph-image-name"],
			defaultVersion)),
		log:   s.talos.config.Log.With("server", hardware.Name),
		phase: PhaseBooting, notes: map[string]string{},
	}
	switch {
	case hardware.Rescue:
		y.foreign = "the rescue system runs, of which nothing is simulated"
	case !runsTalos(hardware.Image):
		y.foreign = "the image is none of Talos, so nothing of its system is simulated"
	}
	return y
}

// run boots the system and keeps it running until ctx is done; then it ends everything that it started.
func (y *system) run(ctx context.Context) {
	defer y.setPhase(phaseOff, "")
	defer y.wipeIfAsked()
	if y.foreign != "" {
		y.setPhase(phaseForeign, y.foreign)
		<-ctx.Done()
		return
	}
	if !sleep(ctx, y.talos.config.Latency.Boot) {
		return
	}
	apid, err := y.start(ctx)
	if err != nil {
		y.maintain(ctx, err)
		return
	}

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { apid.serve(ctx) })
	wg.Go(func() { y.keepAnnounced(ctx) })
	if !sleep(ctx, y.talos.config.Latency.Runtime) {
		return
	}
	y.runtimeUp.Store(true)
	for _, id := range playedServices {
		y.services.run(id, "Started")
	}
	if y.etcd != nil {
		y.services.run(serviceTrustd, "Started")
		wg.Go(func() { y.etcd.run(ctx) })
		wg.Go(func() { y.runPlane(ctx) })
	}
	wg.Go(func() { y.runKubelet(ctx) })
	wg.Go(func() { y.finishBoot(ctx) })
	<-ctx.Done()
}

// start reads the configuration and sets up what the rest relies on. Its error is what keeps a server
// in maintenance mode, or the end of ctx.
func (y *system) start(ctx context.Context) (*apid, error) {
	config, err := y.bootConfig()
	if err != nil {
		return nil, err
	}
	authorities, err := config.authorities()
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{
		y.server.path("var", "lib"), y.server.path("log"), filepath.Join(y.talos.config.ClustersDir, config.Cluster().Name()),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("create a folder of the server: %w", err)
		}
	}
	y.config, y.hostname, y.cluster = config, config.hostname(y.name), config.clusterKey()
	y.authorities = newWatched(authorities)
	if y.applied, err = newConfiguration(ctx, y); err != nil {
		return nil, err
	}
	if y.hostname != y.name {
		y.note("hostname", fmt.Sprintf("the configuration names the node %s: node and server differ, so CAPH denies its "+
			"certificate requests and the cloud controller does not find it", y.hostname))
	}
	if len(config.Cluster().InlineManifests())+len(config.Cluster().ExtraManifestURLs()) > 0 {
		y.note("user manifests", "cluster.inlineManifests and cluster.extraManifests are not applied in a lab")
	}
	if config.controlPlane() && len(config.Cluster().Etcd().ExtraArgs()) > 0 {
		y.note("etcd flags", "cluster.etcd.extraArgs are not given to etcd in a lab")
	}
	y.events = &eventLog{}
	y.services = newServices(y.events, y.log, config.controlPlane())
	y.plane = newWatched[*plane.Plane](nil)
	if config.controlPlane() {
		if y.etcd, err = newEtcdService(y); err != nil {
			return nil, err
		}
	}
	if authorities.machine.issuing == nil {
		y.setPhase(PhaseBooting,
			"waiting for a control plane server of its cluster to sign the machine API's certificate")
	}
	if _, err := awaitSigner(ctx, y.machineSigner); err != nil {
		return nil, err
	}
	apid, err := newAPID(y)
	if err != nil {
		return nil, err
	}
	y.events.publish(&machine.SequenceEvent{Sequence: "boot", Action: machine.SequenceEvent_START})
	y.setPhase(PhaseRunning, "")
	return apid, nil
}

// finishBoot ends the boot sequence once etcd and the kubelet run, as Talos does.
func (y *system) finishBoot(ctx context.Context) {
	from := 0
	for {
		kubelet, _ := y.services.get(serviceKubelet)
		etcd := stateRunning
		if y.etcd != nil {
			etcd, _ = y.services.get(serviceEtcd)
		}
		if kubelet == stateRunning && etcd == stateRunning {
			y.events.publish(&machine.SequenceEvent{Sequence: "boot", Action: machine.SequenceEvent_STOP})
			return
		}
		_, next, more := y.events.after(from) // every change of a service is an event
		from = next
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}

// keepAnnounced announces the server whenever its addresses, authorities, etcd or kube-apiserver change, until ctx is
// done.
func (y *system) keepAnnounced(ctx context.Context) {
	defer y.talos.discovery.withdraw(y.cluster, y.id)
	var etcdChanged <-chan struct{}
	for {
		_, addressesChanged := y.server.addresses.get()
		_, planeChanged := y.plane.get()
		_, authoritiesChanged := y.authorities.get()
		if y.etcd != nil {
			_, etcdChanged = y.etcd.url.get()
		}
		y.announce()
		select {
		case <-ctx.Done():
			return
		case <-addressesChanged:
		case <-planeChanged:
		case <-authoritiesChanged:
		case <-etcdChanged:
		}
	}
}

func (y *system) announce() {
	addresses, _ := y.server.addresses.get()
	authorities, _ := y.authorities.get()
	a := affiliate{hostname: y.hostname, addresses: addresses,
		machineCA: authorities.machine.issuing, clusterCA: authorities.cluster.issuing}
	if y.etcd != nil {
		a.etcd, _ = y.etcd.url.get()
	}
	if p, _ := y.plane.get(); p != nil {
		a.apiServer = strings.TrimPrefix(p.Endpoint(), "https://")
	}
	y.talos.discovery.announce(y.cluster, y.id, a)
}

// await returns the first address of the server that pick accepts, also one that the server gets later; it calls
// waiting with the reason while there is none.
func (y *system) await(ctx context.Context, pick func([]netip.Addr) (netip.Addr, error), waiting func(
	error,
)) (netip.Addr, error) {
	var picked netip.Addr
	_, err := y.server.addresses.await(ctx, func(addrs []netip.Addr) bool {
		addr, err := pick(addrs)
		if err != nil {
			waiting(err)
			return false
		}
		picked = addr
		return true
	})
	return picked, err
}

// ending is the context in which a service that is being stopped may still work: cut short when the power is.
func ending(ctx context.Context) (context.Context, context.CancelFunc) {
	if errors.Is(context.Cause(ctx), errPowerOff) {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
}

// processLabels are the labels of every process of the server, for the lab's status.
func (y *system) processLabels() map[string]string {
	return map[string]string{proc.LabelCluster: y.config.Cluster().Name(), proc.LabelServer: y.name}
}

// resolve finds the address of a server of the cluster by its name, where host DNS is configured to know them.
func (y *system) resolve(name string) (netip.Addr, bool) {
	if !y.config.Machine().Features().HostDNS().ResolveMemberNames() {
		return netip.Addr{}, false
	}
	return y.talos.discovery.resolve(y.cluster, name)
}

// setAPIServer records the state of the control plane and logs a change.
func (y *system) setAPIServer(state string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.apiServer != state {
		y.apiServer = state
		y.log.Info("kube-apiserver", "state", state)
	}
}

func (y *system) setPhase(phase, reason string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.phase, y.reason = phase, reason
}

// note records a difference from the configuration; an empty text removes it.
func (y *system) note(topic, text string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if text == "" {
		delete(y.notes, topic)
		return
	}
	y.notes[topic] = text
}
