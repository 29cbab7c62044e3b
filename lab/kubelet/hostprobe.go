package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// namesHost tells whether a probe connects to another address than the Pod's, which a kubelet does from the host's
// network, without the container.
func namesHost(probe *corev1.Probe) bool {
	return probe != nil && probe.TCPSocket != nil && probe.TCPSocket.Host != ""
}

// askHost connects as a node does from the host's network: on its loopback to KubePrism, which really listens, and to
// the ClusterIP of the Service kubernetes, which leads where Pods reach the API. On a real node the network's agent,
// which is simulated, balances the latter.
func (k *Kubelet) askHost(ctx context.Context, host string, port int32) error {
	asked := net.JoinHostPort(host, strconv.Itoa(int(port)))
	if local := k.cfg.LocalAPI; host == "127.0.0.1" && local.IsValid() && int32(local.Port()) == port {
		return connectTo(ctx, local.String())
	}
	service, err := k.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get the Service kubernetes: %w", err)
	}
	if host != service.Spec.ClusterIP || len(service.Spec.Ports) == 0 || service.Spec.Ports[0].Port != port {
		return fmt.Errorf("dial tcp %s: the lab's nodes reach KubePrism and the ClusterIP of the Service kubernetes only",
			asked)
	}
	if k.cfg.Registry.clusterIPsAway(k.cfg.Node) {
		<-ctx.Done()
		return fmt.Errorf("dial tcp %s: i/o timeout", asked)
	}
	if !k.networkReady() {
		return fmt.Errorf("dial tcp %s: connect: network is unreachable", asked)
	}
	server, err := url.Parse(k.cfg.PodServer)
	if err != nil {
		return err
	}
	return connectTo(ctx, server.Host)
}

func connectTo(ctx context.Context, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// TakeClusterIPs has no ClusterIP answer on the host's network of the Nodes that match a pattern of path.Match, until
// end is called. hit is called for each connection that is not answered.
func (r *Registry) TakeClusterIPs(nodes string, hit func()) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := &takenIPs{nodes, hit}
	r.taken[taken] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.taken, taken)
	}
}

type takenIPs struct {
	nodes string
	hit   func()
}

func (r *Registry) clusterIPsAway(node string) (away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.taken {
		if matches, _ := path.Match(t.nodes, node); matches {
			t.hit()
			away = true
		}
	}
	return away
}
