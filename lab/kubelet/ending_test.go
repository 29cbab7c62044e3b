package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestDeletion(t *testing.T) {
	w := start(t, serve(t, "-stubborn"))
	w.create(servedPod("web"))
	w.awaitReady("web")
	addr, _ := w.cfg.Registry.Address("test", "default", "web", 8080)
	w.markDeleted("web", 1)
	last := make(chan *corev1.Pod, 1)
	w.api.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		options := a.(clienttesting.DeleteActionImpl).DeleteOptions
		if *options.GracePeriodSeconds != 0 || *options.Preconditions.UID != types.UID("web-uid") {
			t.Errorf("deleted with %+v", options)
		}
		pod, err := w.api.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "default", "web")
		if err != nil {
			t.Error(err)
		}
		last <- pod.(*corev1.Pod)
		return false, nil, nil
	})
	eventually(t, "the Pod is gone", func() (string, bool) {
		_, err := w.api.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		return "", apierrors.IsNotFound(err)
	})
	final := <-last
	if s := final.Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 137 ||
		final.Status.Phase != corev1.PodFailed {
		t.Errorf("last status %+v; want SIGKILL after the grace period", final.Status)
	}
	eventually(t, "nothing of it is left", func() (string, bool) {
		_, err := os.Stat(filepath.Join(w.podsDir(), "web-uid"))
		_, registered := w.cfg.Registry.Address("test", "default", "web", 8080)
		return addr, os.IsNotExist(err) && !registered && len(w.processes()) == 0 && len(w.Status().Pods) == 0
	})
}

func TestForcedDeletionWaitsForNothing(t *testing.T) {
	w := start(t, serve(t, "-stubborn"))
	pod := servedPod("web")
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	w.create(pod)
	w.awaitReady("web")
	if err := w.api.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its process is gone", func() (string, bool) { return "", len(w.processes()) == 0 })
}

func TestNetworkComesWithItsAgent(t *testing.T) {
	program := serve(t)
	dir := filepath.Join(t.TempDir(), "kubelet")
	fromAgent := func(c *Config) {
		program(c)
		c.Network, c.Dir = NetworkFromAgent, dir
	}
	w := start(t, fromAgent)
	waits := servedPod("waits")
	host := servedPod("host")
	host.Spec.HostNetwork = true
	w.create(waits)
	w.create(host)
	w.awaitReady("host")
	w.awaitPod("waits", "the Pod waits for the network", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && strings.Contains(s[0].State.Waiting.Message,
			"cni plugin not initialized")
	})
	ready := func() string {
		node, err := w.api.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return nodeReady(node)
	}
	if got := ready(); got != "False KubeletNotReady" {
		t.Errorf("the Node is %q", got)
	}
	agent := newTestPod("agent", "example.org/agent")
	agent.Spec.HostNetwork = true
	agent.Spec.Volumes = []corev1.Volume{{Name: "cni",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d/"}}}}
	w.create(agent)
	w.awaitReady("waits")
	eventually(t, "the Node is Ready", func() (string, bool) { return ready(), ready() == "True KubeletReady" })

	// The network outlives a restart, and the Pods' processes are started again.
	w.stop()
	if len(w.processes()) != 0 {
		t.Errorf("processes %v outlive the kubelet", w.processes())
	}
	again := startOn(t, w.api, fromAgent)
	restarted := again.awaitPod("waits", "the process is started again", func(p *corev1.Pod) bool {
		return isReady(p.Status) && p.Status.ContainerStatuses[0].RestartCount == 1
	})
	if s := restarted.Status.ContainerStatuses[0].LastTerminationState.Terminated; s == nil ||
		s.Reason != "ContainerStatusUnknown" {
		t.Errorf("its container: %+v", restarted.Status.ContainerStatuses)
	}
}
