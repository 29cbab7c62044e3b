package egress

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// catchUp is how long a call waits for a ready Pod: a client that saw it in the API may be ahead of this watch.
const catchUp = 500 * time.Millisecond

// firstRead is how long a call waits until the Services were read for the first time: an API server that has just
// joined others answers its clients before. The API servers' calls of webhooks take up to 10 seconds.
const firstRead = 5 * time.Second

// Addresses returns the local address of a port of a Pod and of a Node's kubelet; *kubelet.Registry implements it.
type Addresses interface {
	Address(cluster, namespace, pod string, containerPort int32) (addr string, ok bool)
	Kubelet(cluster, host string) (addr string, ok bool)
}

// kubeletPort is the port of kubelets. An address of a Node is not looked up as a Service.
const kubeletPort = 10250

// Services resolves the Services of one cluster. It has none before Watch.
type Services struct {
	cluster   string
	addresses Addresses
	outages   *Outages
	turn      atomic.Uint32

	mu      sync.Mutex
	known   *snapshot     // nil before the first sync
	changed chan struct{} // closed at the next change
}

type snapshot struct {
	services listers.ServiceLister
	pods     listers.PodLister
}

// NewServices returns the resolver of a cluster's Services. Nil outages are none.
func NewServices(cluster string, addresses Addresses, outages *Outages) *Services {
	return &Services{cluster: cluster, addresses: addresses, outages: outages, changed: make(chan struct{})}
}

// Watch follows the cluster's Services and Pods until ctx is done. Call it once the apiserver answers.
func (s *Services) Watch(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	services, pods := factory.Core().V1().Services(), factory.Core().V1().Pods()
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), pods.Informer()} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.wake() },
			UpdateFunc: func(any, any) { s.wake() },
			DeleteFunc: func(any) { s.wake() },
		})
		if err != nil {
			return fmt.Errorf("watch the Services of cluster %s: %w", s.cluster, err)
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return fmt.Errorf("watch the Services of cluster %s: %s were not read: %w", s.cluster, kind, context.Cause(ctx))
		}
	}
	s.mu.Lock()
	s.known = &snapshot{services.Lister(), pods.Lister()}
	s.mu.Unlock()
	s.wake()
	<-ctx.Done()
	return nil
}

func (s *Services) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Services) look() (*snapshot, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known, s.changed
}

// Resolve returns the addresses of the processes behind a Service's address, in turn, or that of a Node's kubelet.
func (s *Services) Resolve(ctx context.Context, host string, port int32) (Backend, error) {
	if addr, ok := s.addresses.Kubelet(s.cluster, host); ok && port == kubeletPort {
		return Backend{Addresses: []string{addr}}, nil
	}
	known, changed := s.look()
	if known == nil {
		known, changed = s.waitForFirstRead(ctx)
	}
	timer := time.NewTimer(catchUp)
	defer timer.Stop()
	for ; ; known, changed = s.look() {
		name, addrs, err := s.find(known, host, port)
		if err == nil {
			cut, err := s.outages.admit(s.cluster, name)
			first := int(s.turn.Add(1)) % len(addrs)
			return Backend{Addresses: slices.Concat(addrs[first:], addrs[:first]), Cut: cut}, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return Backend{}, err
		case <-ctx.Done():
			return Backend{}, err
		}
	}
}

// waitForFirstRead looks until the Services were read, or as long as that may take.
func (s *Services) waitForFirstRead(ctx context.Context) (*snapshot, <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	for {
		known, changed := s.look()
		if known != nil || ctx.Err() != nil {
			return known, changed
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// find returns the name of the Service at an address, as namespace/name, and the addresses of
// the processes behind it: one at least.
func (s *Services) find(known *snapshot, host string, port int32) (name string, addrs []string, err error) {
	if known == nil {
		return "", nil, fmt.Errorf("the Services of cluster %s have not been read yet", s.cluster)
	}
	service, err := serviceAt(known.services, host)
	if err != nil {
		return "", nil, err
	}
	name = service.Namespace + "/" + service.Name
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	switch {
	case i < 0:
		return "", nil, fmt.Errorf("Service %s has no port %d", name, port)
	case len(service.Spec.Selector) == 0:
		return "", nil, fmt.Errorf("Service %s selects no Pods", name)
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	pods, err := known.pods.Pods(service.Namespace).List(selector)
	if err != nil {
		return "", nil, fmt.Errorf("Pods of Service %s: %w", name, err)
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var unfit []string
	for _, pod := range pods {
		addr, why := s.addressOf(pod, service.Spec.Ports[i])
		if why != "" {
			unfit = append(unfit, pod.Name+" "+why)
			continue
		}
		addrs = append(addrs, addr)
	}
	switch {
	case len(addrs) > 0:
		return name, addrs, nil
	case len(unfit) > 0:
		return "", nil, fmt.Errorf("Service %s has no Pod that can be reached: %s", name, strings.Join(unfit, "; "))
	default:
		return "", nil, fmt.Errorf("Service %s has no Pod: none in namespace %s matches %s", name, service.Namespace,
			selector)
	}
}

func serviceAt(services listers.ServiceLister, host string) (*corev1.Service, error) {
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, fmt.Errorf("%q is no IP address: only the cluster addresses of Services are reached here", host)
	}
	all, err := services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Services: %w", err)
	}
	for _, service := range all {
		for _, clusterIP := range append(slices.Clone(service.Spec.ClusterIPs), service.Spec.ClusterIP) {
			if ip.Equal(net.ParseIP(clusterIP)) {
				return service, nil
			}
		}
	}
	return nil, fmt.Errorf("no Service has the address %s", host)
}

// addressOf returns where a Service's port is in a Pod, or why it cannot be reached.
func (s *Services) addressOf(pod *corev1.Pod, port corev1.ServicePort) (addr, why string) {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	number, ok := targetPort(pod, port)
	switch {
	case pod.DeletionTimestamp != nil:
		return "", "is being deleted"
	case !ready:
		return "", "is not ready"
	case !ok:
		return "", fmt.Sprintf("has no port named %q", port.TargetPort.StrVal)
	}
	if addr, ok = s.addresses.Address(s.cluster, pod.Namespace, pod.Name, number); !ok {
		return "", fmt.Sprintf("has no process of the lab on port %d", number)
	}
	return addr, ""
}

func targetPort(pod *corev1.Pod, port corev1.ServicePort) (int32, bool) {
	switch {
	case port.TargetPort.Type == intstr.Int && port.TargetPort.IntVal != 0:
		return port.TargetPort.IntVal, true
	case port.TargetPort.Type == intstr.Int:
		return port.Port, true
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port.TargetPort.StrVal {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}
