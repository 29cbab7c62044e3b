package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// report writes the Pod's status whenever it changes, until ctx is done.
func (p *pod) report(ctx context.Context) {
	retry := toAPI()
	for {
		changed := p.changed.next()
		err := p.writeStatus(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			retry.reset()
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err): // the watch will say that the Pod is gone
		default:
			wait := retry.next()
			p.log.Warn("the Pod's status was not written", "reason", err, "again", wait)
			if !sleep(ctx, wait) {
				return
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// writeStatus makes the API's status what it should be, and leaves the parts of others alone.
func (p *pod) writeStatus(ctx context.Context) error {
	status := p.status()
	if p.isNetworkAgent() && isReady(status) {
		p.k.agentReady(p.String())
	}
	api := p.seen()
	status.Conditions = withForeign(status.Conditions, api.Status.Conditions)
	patch, err := statusPatch(p.uid, api.Status, status, corev1.Pod{})
	if err != nil || patch == nil {
		return err
	}
	api, err = p.k.client.CoreV1().Pods(p.namespace).Patch(ctx, p.name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write pod %s: %w", p, err)
	}
	// So that the next change is compared with this one. Should the watch still deliver an earlier state, the comparison
	// after the one that follows puts it right.
	p.observe(api)
	return nil
}

// kubeletConditions are the conditions that belong to the kubelet.
var kubeletConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
}

// withForeign adds the conditions of others, and keeps the times of those that did not change.
func withForeign(own, api []corev1.PodCondition) []corev1.PodCondition {
	merged := slices.Clone(own)
	for _, c := range api {
		i := slices.IndexFunc(merged, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		switch {
		case i < 0 && !slices.Contains(kubeletConditions, c.Type):
			merged = append(merged, c)
		case i >= 0 && merged[i].Status == c.Status:
			merged[i].LastTransitionTime = c.LastTransitionTime
		}
	}
	return merged
}

// status says how the Pod is now.
func (p *pod) status() corev1.PodStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if finished(p.api) && p.startedAt.IsZero() { // before this kubelet saw it: nothing to add
		return p.api.Status
	}
	if p.startedAt.IsZero() {
		p.startedAt = metav1.NewTime(time.Now().Truncate(time.Second)) // the API keeps whole seconds
		if p.api.Status.StartTime != nil {
			p.startedAt = *p.api.Status.StartTime
		}
	}
	started := p.startedAt
	s := corev1.PodStatus{
		Phase: p.phase(), HostIP: p.k.cfg.InternalIP, HostIPs: []corev1.HostIP{{IP: p.k.cfg.InternalIP}}, StartTime: &started,
		QOSClass:              p.api.Status.QOSClass, // the API server's
		NominatedNodeName:     p.api.Status.NominatedNodeName,
		Resize:                p.api.Status.Resize,
		ResourceClaimStatuses: p.api.Status.ResourceClaimStatuses,
	}
	for _, c := range p.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses, c.reported(true))
	}
	for _, c := range p.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, c.reported(!p.initialized))
	}
	s.Conditions = p.conditions(s.Phase)
	return s
}

// reported is the container's status as the API gets it. The caller holds the Pod's lock.
func (c *container) reported(initializing bool) corev1.ContainerStatus {
	s := *c.status.DeepCopy()
	if w := s.State.Waiting; w != nil && w.Reason == "ContainerCreating" {
		if initializing && len(c.p.inits) > 0 {
			w.Reason = "PodInitializing"
		}
		if w.Message == "" {
			w.Message = c.p.waiting
		}
	}
	if t := s.State.Terminated; c.init && !c.sidecar() && t != nil && t.ExitCode == 0 {
		s.Ready = true // that is what readiness means of an init container
	}
	return s
}

// phase sums the containers up as a kubelet does. The caller holds the Pod's lock.
func (p *pod) phase() corev1.PodPhase {
	for _, c := range p.inits {
		if c.over && c.status.State.Terminated != nil && c.status.State.Terminated.ExitCode != 0 {
			return corev1.PodFailed
		}
	}
	if !p.initialized && !p.wasRunning() {
		return corev1.PodPending
	}
	over, failed, begun := 0, false, false
	ending := p.api.DeletionTimestamp != nil // nothing is started again
	for _, c := range p.containers {
		state := c.status.State
		if (c.over || ending) && state.Terminated != nil {
			over++
			failed = failed || state.Terminated.ExitCode != 0
		}
		begun = begun || state.Waiting == nil || c.status.LastTerminationState.Terminated != nil
	}
	switch {
	case over == len(p.containers) && failed:
		return corev1.PodFailed
	case over == len(p.containers):
		return corev1.PodSucceeded
	case begun:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

// wasRunning says whether a container has run before, under a kubelet before this one for example:
// a Pod that ran is never pending again.
func (p *pod) wasRunning() bool {
	return slices.ContainsFunc(p.containers,
		func(c *container) bool { return c.status.LastTerminationState.Terminated != nil })
}

// conditions says which of the Pod's milestones are reached. The caller holds the Pod's lock.
func (p *pod) conditions(phase corev1.PodPhase) []corev1.PodCondition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	condition := func(kind corev1.PodConditionType, holds bool, reason, message string) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now}
		if !holds {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reason, message
		}
		return c
	}
	var unready, uninitialized []string
	for _, c := range p.inits {
		if c.sidecar() && !c.status.Ready {
			unready = append(unready, c.spec.Name)
		}
		if t := c.status.State.Terminated; !c.sidecar() && (t == nil || t.ExitCode != 0) {
			uninitialized = append(uninitialized, c.spec.Name)
		}
	}
	for _, c := range p.containers {
		if !c.status.Ready {
			unready = append(unready, c.spec.Name)
		}
	}
	reason, message := "ContainersNotReady", fmt.Sprintf("containers with unready status: [%s]",
		strings.Join(unready, " "))
	if phase == corev1.PodSucceeded {
		reason, message = "PodCompleted", ""
	}
	ready := len(unready) == 0
	conditions := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, p.mounted && phase != corev1.PodSucceeded && phase != corev1.PodFailed,
			"", ""),
		condition(corev1.PodInitialized, p.initialized, "ContainersNotInitialized",
			fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(uninitialized, " "))),
		condition(corev1.ContainersReady, ready, reason, message),
		condition(corev1.PodScheduled, true, "", ""),
	}
	for _, gate := range p.api.Spec.ReadinessGates {
		passed := slices.ContainsFunc(p.api.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == gate.ConditionType && c.Status == corev1.ConditionTrue
		})
		if ready && !passed {
			ready, reason = false, "ReadinessGatesNotReady"
			message = fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist or is not True",
				gate.ConditionType)
		}
	}
	return append(conditions, condition(corev1.PodReady, ready, reason, message))
}

func isReady(s corev1.PodStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// resume takes over what a kubelet before this one reported: its processes are gone, so whatever ran is over.
func (p *pod) resume() {
	before := map[string]corev1.ContainerStatus{}
	for _, s := range append(slices.Clone(p.api.Status.InitContainerStatuses), p.api.Status.ContainerStatuses...) {
		before[s.Name] = s
	}
	for _, c := range p.all() {
		s, ok := before[c.spec.Name]
		if !ok {
			continue
		}
		c.status.RestartCount, c.status.LastTerminationState = s.RestartCount, s.LastTerminationState
		c.status.ContainerID, c.status.ImageID = s.ContainerID, s.ImageID
		ended := s.State.Terminated
		if s.State.Running != nil {
			ended = &corev1.ContainerStateTerminated{
				ExitCode: 137, Reason: "ContainerStatusUnknown", Message: "The node was restarted while the container ran",
				StartedAt: s.State.Running.StartedAt, FinishedAt: metav1.NewTime(time.Now().Truncate(time.Second)),
				ContainerID: s.ContainerID,
			}
		}
		if ended == nil {
			continue
		}
		if !c.init && !c.again(ended.ExitCode) { // init containers run again, as after the restart of a real node
			c.over = true
			c.status.State = corev1.ContainerState{Terminated: ended}
			continue
		}
		c.status.LastTerminationState = corev1.ContainerState{Terminated: ended}
	}
}
