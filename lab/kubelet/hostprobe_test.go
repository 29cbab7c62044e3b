package kubelet

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A simulated Pod whose probes name a host is Ready only when the node reaches it.
func TestProbesOfTheHostsNetwork(t *testing.T) {
	api, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	address := netip.MustParseAddrPort(api.Addr().String())
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.1", Ports: []corev1.ServicePort{{Port: 443}}}}
	w := start(t, func(c *Config) {
		c.LocalAPI, c.PodServer = address, "https://"+address.String()
	}, service)
	create := func(name, host string, port int32) {
		pod := newTestPod(name, "example.org/unknown")
		pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Host: host, Port: intstr.FromInt32(port)}}}
		w.create(pod)
	}
	create("prism", "127.0.0.1", int32(address.Port()))
	w.awaitReady("prism")
	create("service", "10.96.0.1", 443)
	w.awaitReady("service")
	hits := 0
	end := w.cfg.Registry.TakeClusterIPs("node-*", func() { hits++ })
	for name, tt := range map[string]struct {
		host string
		port int32
		says string
	}{
		"taken": {"10.96.0.1", 443, "dial tcp 10.96.0.1:443: i/o timeout"},
		"other": {"10.96.0.7", 443, "dial tcp 10.96.0.7:443: the lab's nodes reach"},
	} {
		create(name, tt.host, tt.port)
		eventually(t, "an event that the probe failed", func() (string, bool) {
			all, err := w.api.CoreV1().Events(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err.Error(), false
			}
			for _, e := range all.Items {
				if e.Reason == "Unhealthy" && e.InvolvedObject.Name == name && strings.Contains(e.Message, tt.says) &&
					strings.HasPrefix(e.InvolvedObject.FieldPath, "spec.containers{") {
					return "", true
				}
			}
			return "no such event", false
		})
		running := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }
		if p := w.awaitPod(name, "running", running); condition(p, corev1.PodReady) != corev1.ConditionFalse {
			t.Errorf("Pod %s is Ready", name)
		}
	}
	end()
	w.awaitReady("taken")
	if hits == 0 {
		t.Error("no connection was counted")
	}
}
