package kubelet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/lab/proc"
)

// container runs one container of a Pod: as a process if a Program has its image, else as a simulation.
type container struct {
	p       *pod
	spec    corev1.Container
	init    bool
	program *Program // nil: simulated

	// Guarded by the Pod's lock.
	status  corev1.ContainerStatus
	process *proc.Process // that runs now
	ports   map[int32]int // local ports by container port
	over    bool          // it has ended and is not started again

	log, logBefore *containerLog // of the present or last run of a process, and of the one before

	unprobedKinds sync.Map // probes that an event has said not to be carried out
}

func newContainer(p *pod, spec corev1.Container, init bool) *container {
	c := &container{p: p, spec: spec, init: init}
	if program, ok := Match(p.k.cfg.Programs, spec.Image); ok {
		c.program = &program
	}
	c.status = corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, Started: ptr.To(false), State: waiting("ContainerCreating", ""),
	}
	return c
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// sidecar says whether this is an init container that keeps running.
func (c *container) sidecar() bool {
	return c.init && c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// again says whether a container that ended with this code is restarted.
func (c *container) again(code int32) bool {
	policy := c.p.seen().Spec.RestartPolicy
	switch {
	case c.sidecar():
		return true
	case c.init || policy == corev1.RestartPolicyOnFailure:
		return code != 0 && policy != corev1.RestartPolicyNever
	default:
		return policy != corev1.RestartPolicyNever
	}
}

// completes says whether a simulated container ends without being stopped.
func (c *container) completes() bool {
	api := c.p.seen()
	owner := metav1.GetControllerOf(api)
	return c.init && !c.sidecar() || api.Spec.RestartPolicy != corev1.RestartPolicyAlways ||
		owner != nil && owner.Kind == "Job"
}

// run starts the container, and restarts it according to the Pod's restart policy. It returns true if it ended with
// exit code 0 and is not restarted, false if it failed or ctx is done; in any case nothing runs any more.
func (c *container) run(ctx context.Context) bool {
	if code, over := c.overBefore(); over {
		return code == 0
	}
	latency := c.p.k.cfg.Latency
	pause := time.Duration(0) // the first restart is at once, as a kubelet's
	for {
		began := time.Now()
		code, ran := c.once(ctx)
		if ctx.Err() != nil {
			return false
		}
		if ran && !c.again(code) {
			c.update(func() { c.over = true })
			return code == 0
		}
		if time.Since(began) > 10*latency.RestartMost {
			pause = 0
		}
		if ran && pause > 0 {
			c.backOff(pause)
		}
		if !sleep(ctx, max(pause, latency.Restart/10)) {
			return false
		}
		pause = min(max(2*pause, latency.Restart), latency.RestartMost)
	}
}

func (c *container) overBefore() (code int32, over bool) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.over && c.status.State.Terminated != nil {
		code = c.status.State.Terminated.ExitCode
	}
	return code, c.over
}

// update changes the container under the Pod's lock and notifies the waiters.
func (c *container) update(change func()) {
	c.p.mu.Lock()
	change()
	c.p.mu.Unlock()
	c.p.changed.raise()
}

func (c *container) wait(reason, message string) {
	c.update(func() {
		if c.status.State.Terminated != nil {
			c.status.LastTerminationState = c.status.State
		}
		c.status.State = waiting(reason, message)
	})
}

func (c *container) backOff(pause time.Duration) {
	message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", pause, c.spec.Name, c.p.name,
		c.p.namespace, c.p.uid)
	c.wait("CrashLoopBackOff", message)
	c.p.event(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s in pod %s", c.spec.Name,
		c.p.name)
}

// once runs the container one time. Ran is false when it could not be started.
func (c *container) once(ctx context.Context) (code int32, ran bool) {
	if c.program == nil && c.p.k.cfg.RefuseUnmapped {
		message := fmt.Sprintf("no program runs for image %s in this cluster", c.spec.Image)
		c.wait("ErrImagePull", message)
		c.p.event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %s", c.spec.Image, message)
		return 0, false
	}
	if !c.p.k.pull(ctx, c.spec.Image) {
		return 0, false
	}
	env, ok := c.awaitEnvironment(ctx)
	if !ok {
		return 0, false
	}
	if c.program == nil {
		return c.simulate(ctx), true
	}
	launch, err := c.prepare(env)
	if err == nil {
		defer launch.release()
		code, err = c.execute(ctx, launch)
	}
	if err != nil {
		c.p.log.Warn("a container was not started", "container", c.spec.Name, "reason", err)
		c.wait("CreateContainerError", err.Error())
		c.p.event(corev1.EventTypeWarning, "Failed", "Error: %s", err)
		return 0, false
	}
	return code, true
}

// awaitEnvironment resolves the container's environment, and waits until that can be done.
func (c *container) awaitEnvironment(ctx context.Context) (map[string]string, bool) {
	for said := ""; ; {
		changed := c.p.changed.next()
		env, err := c.p.environment(c.spec)
		if err == nil {
			return env, true
		}
		if message := err.Error(); message != said && !errors.Is(err, errAgain) {
			said = message
			c.wait("CreateContainerConfigError", message)
			c.p.event(corev1.EventTypeWarning, "Failed", "Error: %s", message)
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-changed:
		}
	}
}

// simulate reports the container Ready after a moment, or once the probe succeeds that needs no program in it, and
// completes it if it is one that completes.
func (c *container) simulate(ctx context.Context) int32 {
	c.running(nil, nil)
	c.p.event(corev1.EventTypeNormal, "Started", "Started container %s (simulated: the lab has no program for image %s)",
		c.spec.Name, c.spec.Image)
	began := time.Now()
	if sleep(ctx, c.p.k.cfg.Latency.StartContainer) && !c.completes() {
		c.update(func() { c.status.Started = ptr.To(true) })
		if probe := c.spec.ReadinessProbe; namesHost(probe) {
			c.followReadiness(ctx, probe)
		} else {
			c.setReady(true)
		}
		<-ctx.Done()
	}
	c.terminated(began, 0, "")
	return 0
}

// execute runs the container's process until it ends, its liveness probe fails, or ctx is done.
func (c *container) execute(ctx context.Context, l *launch) (int32, error) {
	written := fileSize(l.spec.LogFile)
	process, err := c.p.k.cfg.Processes.Start(l.spec)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	log := newContainerLog(l.spec.LogFile, written)
	if before := c.lastLog(); before != nil {
		before.putAside(written)
	}
	c.update(func() { c.logBefore, c.log = c.log, log })
	c.running(process, l.ports)
	logCtx, endLog := context.WithCancel(context.Background())
	var logged sync.WaitGroup
	logged.Go(func() { log.keep(logCtx) })
	defer logged.Wait()
	defer endLog()
	c.p.event(corev1.EventTypeNormal, "Started", "Started container %s as process %d", c.spec.Name, process.PID())
	healthCtx, stopHealth := context.WithCancel(ctx)
	sick := make(chan string, 1)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		c.watchHealth(healthCtx, sick)
	}()
	select {
	case <-process.Done():
	case reason := <-sick:
		c.p.event(corev1.EventTypeNormal, "Killing", "Container %s failed %s probe, will be restarted", c.spec.Name, reason)
	case <-ctx.Done():
		c.update(func() { c.status.Ready = false })
		c.p.event(corev1.EventTypeNormal, "Killing", "Stopping container %s", c.spec.Name)
	}
	stopHealth()
	err = process.Stop(c.p.kill, c.p.grace(ctx)) // nothing to do where it has ended
	<-watched
	if err != nil {
		c.p.log.Error("a container's process did not end", "container", c.spec.Name, "reason", err)
	}
	exit, _ := process.Exit()
	code := exitCode(exit)
	c.terminated(began, code, c.lastWords(code, l.spec.LogFile))
	return code, nil
}

// running records that the container has been started.
func (c *container) running(process *proc.Process, ports map[int32]int) {
	c.update(func() {
		if c.status.State.Terminated != nil {
			c.status.LastTerminationState = c.status.State
		}
		if c.status.LastTerminationState.Terminated != nil {
			c.status.RestartCount++
		}
		c.process, c.ports = process, ports
		c.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		c.status.ContainerID = fmt.Sprintf("slipway-lab://%s/%s/%d", c.p.uid, c.spec.Name, c.status.RestartCount)
		c.status.ImageID = "slipway-lab://" + c.spec.Image
	})
}

func (c *container) terminated(began time.Time, code int32, message string) {
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	c.update(func() {
		c.process, c.ports = nil, nil
		c.status.Ready, c.status.Started = false, ptr.To(false)
		c.status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, ContainerID: c.status.ContainerID,
			StartedAt: metav1.NewTime(began), FinishedAt: metav1.Now(),
		}}
	})
}

// lastWords returns the termination message of a failed container: the end of its log if the container requests that,
// as much as a kubelet takes (2048 bytes, 80 lines).
func (c *container) lastWords(code int32, log string) string {
	if code == 0 || c.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	words := proc.Tail(log, 80)
	return strings.ToValidUTF8(words[max(0, len(words)-2048):], "")
}

// exitCode is 128 and the signal's number for a process that a signal ended, as container runtimes report it.
func exitCode(exit proc.Exit) int32 {
	if exit.Code >= 0 {
		return int32(exit.Code)
	}
	for s := syscall.Signal(1); s < 32; s++ {
		if strings.HasPrefix(exit.Reason, "signal: "+s.String()) {
			return 128 + int32(s)
		}
	}
	return 255
}

// describe is the container's part of the kubelet's status.
func (c *container) describe() ContainerStatus {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	d := ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, Fidelity: Simulated, State: "running",
		Ready: c.status.Ready, Restarts: c.status.RestartCount,
	}
	if c.program != nil {
		d.Fidelity, d.Note = cmp.Or(c.program.Fidelity, Real), c.program.Note
	}
	if c.process != nil {
		d.PID = c.process.PID()
	}
	switch state := c.status.State; {
	case state.Waiting != nil:
		d.State = state.Waiting.Reason
	case state.Terminated != nil:
		d.State = state.Terminated.Reason
	}
	return d
}
