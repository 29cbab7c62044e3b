package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/lab/sandbox"
)

const (
	// switchOffGrace is how long processes may take to end when the node is switched off.
	switchOffGrace = 2 * time.Second
	// cniFolder is the folder of the host to which a CNI agent writes its configuration.
	cniFolder = "/etc/cni/net.d"
)

// pod runs one Pod from its binding to the Node until its deletion from the API.
type pod struct {
	k               *Kubelet
	namespace, name string
	uid             types.UID
	dir             string
	log             *slog.Logger
	changed         notifier // anything below, or an object that the Pod refers to

	// kill is done when there is nothing to wait for: the Pod was deleted by force.
	kill   context.Context
	killed context.CancelFunc

	inits, containers []*container    // neither changes
	kept              map[string]bool // volumes that outlive the kubelet; does not change

	mu          sync.Mutex
	api         *corev1.Pod // as last seen
	vanished    bool
	startedAt   metav1.Time
	mounted     bool   // volumes exist: the sandbox of a real Pod
	initialized bool   // the init containers have completed
	waiting     string // why no container has been started yet
	tokens      map[tokenKey]token
	volumes     map[string]map[string][]byte // files of each as last written
	net         *sandbox.Network             // nil: the lab's
}

func newPod(k *Kubelet, api *corev1.Pod) *pod {
	p := &pod{
		k: k, namespace: api.Namespace, name: api.Name, uid: api.UID, api: api,
		dir:     filepath.Join(k.podsDir(), string(api.UID)),
		log:     k.log.With("pod", api.Namespace+"/"+api.Name),
		tokens:  map[tokenKey]token{},
		volumes: map[string]map[string][]byte{},
		kept:    keptVolumes(api),
	}
	p.kill, p.killed = context.WithCancel(context.Background())
	for _, spec := range api.Spec.InitContainers {
		p.inits = append(p.inits, newContainer(p, spec, true))
	}
	for _, spec := range api.Spec.Containers {
		p.containers = append(p.containers, newContainer(p, spec, false))
	}
	p.resume()
	return p
}

// observe records the Pod's new state in the API.
func (p *pod) observe(api *corev1.Pod) {
	p.mu.Lock()
	p.api = api
	p.mu.Unlock()
	p.changed.raise()
}

func (p *pod) vanish() {
	p.mu.Lock()
	p.vanished = true
	p.mu.Unlock()
	p.killed()
	p.changed.raise()
}

// seen returns the last known state of the Pod in the API. It must not be changed.
func (p *pod) seen() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api
}

// run runs the Pod until the API has deleted it or ctx is done.
func (p *pod) run(ctx context.Context) {
	defer p.killed()
	for _, r := range p.references() {
		p.k.objects.follow(ctx, r, &p.changed)
		defer p.k.objects.forget(r, &p.changed)
	}
	var reporting sync.WaitGroup
	reportCtx, stopReports := context.WithCancel(ctx)
	reporting.Go(func() { p.report(reportCtx) })

	playCtx, stop := context.WithCancel(ctx)
	played := make(chan struct{})
	go func() {
		defer close(played)
		if !finished(p.seen()) {
			p.play(playCtx)
		}
	}()
	p.await(ctx, func() bool { return p.vanished || p.api.DeletionTimestamp != nil })
	stop()
	<-played
	stopReports()
	reporting.Wait()
	if ctx.Err() == nil {
		p.remove(ctx)
	}
	if err := os.RemoveAll(p.dir); err != nil {
		p.log.Warn("the Pod's folder was not removed", "reason", err)
	}
	if ctx.Err() == nil {
		if err := os.RemoveAll(p.keptDir()); err != nil {
			p.log.Warn("the Pod's volumes were not removed", "reason", err)
		}
	}
}

// await waits until the condition holds, which is evaluated under the lock, or ctx is done.
func (p *pod) await(ctx context.Context, holds func() bool) bool {
	for {
		changed := p.changed.next()
		p.mu.Lock()
		ok := holds()
		p.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// finished says whether a Pod ended before this kubelet saw it.
func finished(api *corev1.Pod) bool {
	return api.Status.Phase == corev1.PodSucceeded || api.Status.Phase == corev1.PodFailed
}

// play starts the containers, and returns when none of them is restarted any more, or when ctx is done and they are
// stopped.
func (p *pod) play(ctx context.Context) {
	if p.over() { // before this kubelet saw it
		p.setInitialized()
		return
	}
	if !p.awaitNetwork(ctx) || !p.mount(ctx) {
		return
	}
	leave, ok := p.joinNetwork(ctx)
	if !ok {
		return
	}
	defer leave()
	var refreshing sync.WaitGroup
	refreshCtx, stopRefresh := context.WithCancel(ctx)
	refreshing.Go(func() { p.refreshVolumes(refreshCtx) })
	defer refreshing.Wait()
	defer stopRefresh()

	// Sidecars end last, in the reverse of their order.
	var stopSidecars []func()
	defer func() {
		for i := len(stopSidecars) - 1; i >= 0; i-- {
			stopSidecars[i]()
		}
	}()
	for _, c := range p.inits {
		if !c.sidecar() {
			if !c.run(ctx) {
				return
			}
			continue
		}
		sidecarCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(sidecarCtx)
		}()
		stopSidecars = append(stopSidecars, func() { cancel(); <-ended })
		if !p.await(ctx, func() bool { return c.status.Started != nil && *c.status.Started }) {
			return
		}
	}
	p.setInitialized()
	var wg sync.WaitGroup
	for _, c := range p.containers {
		wg.Go(func() { c.run(ctx) })
	}
	wg.Wait()
}

func (p *pod) setInitialized() {
	p.mu.Lock()
	p.initialized = true
	p.mu.Unlock()
	p.changed.raise()
}

// over says whether no container may be started any more.
func (p *pod) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(p.containers, func(c *container) bool { return !c.over })
}

// awaitNetwork delays a Pod until the Node has its Pod network, unless the Pod uses the host's.
func (p *pod) awaitNetwork(ctx context.Context) bool {
	if p.seen().Spec.HostNetwork {
		return true
	}
	for said := false; ; said = true {
		changed := p.k.changed.next()
		if p.k.networkReady() {
			p.setWaiting("")
			return true
		}
		if !said {
			p.setWaiting("network is not ready: container runtime network not ready: " + networkNotReady)
			p.event(corev1.EventTypeWarning, "NetworkNotReady", "network is not ready: container runtime network not ready: %s",
				networkNotReady)
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

// setWaiting records why no container has been started yet.
func (p *pod) setWaiting(message string) {
	p.mu.Lock()
	p.waiting = message
	p.mu.Unlock()
	p.changed.raise()
}

func (p *pod) event(kind, reason, format string, args ...any) {
	p.k.events.Eventf(p.seen(), kind, reason, format, args...)
}

// grace is how long the Pod's processes may take to end.
func (p *pod) grace(ctx context.Context) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	grace := 30 * time.Second // as the API server's default
	if s := p.api.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if s := p.api.DeletionGracePeriodSeconds; p.api.DeletionTimestamp != nil && s != nil {
		grace = time.Duration(*s) * time.Second
	} else if ctx.Err() != nil { // no deletion: the node is switched off
		grace = min(grace, switchOffGrace)
	}
	return grace
}

// remove writes the last status and deletes the Pod from the API.
func (p *pod) remove(ctx context.Context) {
	for retry := toAPI(); !p.isGone(); {
		err := p.writeStatus(ctx)
		if err == nil {
			none := int64(0)
			err = p.k.client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{
				GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &p.uid},
			})
		}
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) && !p.sameUID(ctx) {
			break
		}
		wait := retry.next()
		p.log.Warn("the Pod was not removed from the API", "reason", err, "again", wait)
		if !sleep(ctx, wait) {
			return
		}
	}
	// A finalizer may still keep it in the API; its owner removes it.
	p.await(ctx, func() bool { return p.vanished })
}

// sameUID says whether the API still has this Pod and not a later one of its name.
func (p *pod) sameUID(ctx context.Context) bool {
	api, err := p.k.client.CoreV1().Pods(p.namespace).Get(ctx, p.name, metav1.GetOptions{})
	return err != nil && !apierrors.IsNotFound(err) || err == nil && api.UID == p.uid
}

func (p *pod) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.vanished
}

// mapped says whether any container of the Pod runs as a process: only then volumes are mounted.
func (p *pod) mapped() bool {
	for _, c := range p.all() {
		if c.program != nil {
			return true
		}
	}
	return false
}

// isNetworkAgent says whether the Pod configures the Node's network.
func (p *pod) isNetworkAgent() bool {
	for _, v := range p.seen().Spec.Volumes {
		if v.HostPath != nil && path.Clean(v.HostPath.Path) == cniFolder {
			return true
		}
	}
	return false
}

// hostname is the name of the host for the Pod's processes.
func (p *pod) hostname() string {
	if p.seen().Spec.HostNetwork {
		return p.k.cfg.Node
	}
	return p.name
}

// describe is the Pod's part of the kubelet's status.
func (p *pod) describe() PodStatus {
	status := p.status()
	d := PodStatus{Namespace: p.namespace, Name: p.name, Phase: string(status.Phase), Containers: []ContainerStatus{}}
	if status.StartTime != nil {
		d.StartedAt = status.StartTime.Time
	}
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady {
			d.Ready = c.Status == corev1.ConditionTrue
		}
	}
	for _, c := range p.all() {
		d.Containers = append(d.Containers, c.describe())
	}
	return d
}

// all returns every container, those that initialize first.
func (p *pod) all() []*container { return slices.Concat(p.inits, p.containers) }

// String names the Pod in errors.
func (p *pod) String() string { return fmt.Sprintf("%s/%s", p.namespace, p.name) }
