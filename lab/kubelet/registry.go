package kubelet

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
)

// Registry has the local ports of the Pods' processes and of the kubelets. All kubelets of a lab share one.
type Registry struct {
	mu       sync.Mutex
	addrs    map[portKey]string
	ports    map[int]bool // allotted
	next     int
	kubelets map[hostKey]string
	pods     map[portKey]podNetwork // by key without port: Pods with a network of their own
	hosts    map[string]*hosts      // by cluster
	taken    map[*takenIPs]bool
}

// podNetwork is where a Pod is.
type podNetwork struct {
	uid     string
	address netip.Addr
}

type hostKey struct{ cluster, host string }

type portKey struct {
	cluster, namespace, pod string
	port                    int32
}

// The ports allotted to processes lie below Linux's range for outgoing connections (from 32768), so that none of these
// takes one between its allotment and the process that listens on it.
const (
	firstPort = 20000
	lastPort  = 31999
)

// NewRegistry returns an empty registry.
func NewRegistry() *Registry {
	return &Registry{addrs: map[portKey]string{}, ports: map[int]bool{}, next: firstPort, kubelets: map[hostKey]string{},
		pods: map[portKey]podNetwork{}, hosts: map[string]*hosts{}, taken: map[*takenIPs]bool{}}
}

// Address returns the address in the lab of a port of a Pod's containers, "127.0.0.1:20007" or, of a Pod with a network
// of its own, "198.18.0.7:9443"; ok is false if there is none.
func (r *Registry) Address(cluster, namespace, pod string, containerPort int32) (addr string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if own, ok := r.pods[portKey{cluster, namespace, pod, 0}]; ok {
		return netip.AddrPortFrom(own.address, uint16(containerPort)).String(), true
	}
	addr, ok = r.addrs[portKey{cluster, namespace, pod, containerPort}]
	return addr, ok
}

// setPod records the address of a Pod with a network of its own.
func (r *Registry) setPod(key portKey, uid string, address netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[key] = podNetwork{uid, address}
}

// unsetPod removes it, unless a later Pod of the same name has taken its place.
func (r *Registry) unsetPod(key portKey, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[key].uid == uid {
		delete(r.pods, key)
	}
}

// Kubelet returns where the kubelet of a Node serves; host is the Node's name or one of its addresses.
func (r *Registry) Kubelet(cluster, host string) (addr string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	addr, ok = r.kubelets[hostKey{cluster, host}]
	return addr, ok
}

func (r *Registry) setKubelet(cluster string, hosts []string, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, host := range hosts {
		if host != "" {
			r.kubelets[hostKey{cluster, host}] = addr
		}
	}
}

// unsetKubelet removes a kubelet, unless another one has taken its place.
func (r *Registry) unsetKubelet(cluster string, hosts []string, addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, host := range hosts {
		if key := (hostKey{cluster, host}); r.kubelets[key] == addr {
			delete(r.kubelets, key)
		}
	}
}

// allot finds a free local port for a port of a Pod.
func (r *Registry) allot(key portKey) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range lastPort - firstPort + 1 {
		port := r.next
		if r.next++; r.next > lastPort {
			r.next = firstPort
		}
		if r.ports[port] || !free(port) {
			continue
		}
		r.ports[port] = true
		r.addrs[key] = loopback(port)
		return port, nil
	}
	return 0, fmt.Errorf("allot a port to %s/%s: no port of 127.0.0.1 between %d and %d is free", key.namespace, key.pod,
		firstPort, lastPort)
}

// release frees a port of a Pod.
func (r *Registry) release(key portKey, port int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.ports, port)
	if r.addrs[key] == loopback(port) { // a later process may have the port
		delete(r.addrs, key)
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
