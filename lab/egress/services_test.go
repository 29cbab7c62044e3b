package egress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

// addresses knows some Pods' ports.
type addresses map[string]string

func (a addresses) Address(cluster, namespace, pod string, port int32) (string, bool) {
	addr, ok := a[fmt.Sprintf("%s/%s/%s/%d", cluster, namespace, pod, port)]
	return addr, ok
}

func (a addresses) Kubelet(cluster, host string) (string, bool) {
	addr, ok := a[cluster+" "+host]
	return addr, ok
}

func service(name, ip string, selector map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Selector: selector, Ports: ports},
	}
}

func pod(name string, ready bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"app": "hook"}}}
	p.Spec.Containers = []corev1.Container{
		{Name: "beside"}, {Name: "main", Ports: []corev1.ContainerPort{{Name: "webhook", ContainerPort: 9443}}},
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return p
}

// resolver watches a fake cluster of these objects.
func resolver(t *testing.T, known addresses, objects ...runtime.Object) (*Services, *fake.Clientset) {
	t.Helper()
	api := fake.NewClientset(objects...)
	s := NewServices("c", known, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, api) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		synced, changed := s.look()
		if synced != nil {
			return s, api
		}
		select {
		case <-changed:
		case <-time.After(time.Until(deadline)):
			t.Fatal("the Services were not read within 20 s")
		}
	}
}

func TestResolve(t *testing.T) {
	hook := map[string]string{"app": "hook"}
	gone := pod("gone", true)
	gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.org/hold"}
	s, _ := resolver(t, addresses{"c/ns/a/9443": "127.0.0.1:1", "c/ns/b/9443": "127.0.0.1:2", "c/ns/a/80": "127.0.0.1:3",
		"c/ns/gone/9443": "127.0.0.1:4", "c node-1": "127.0.0.1:5"},
		service("named", "127.1.0.1", hook, corev1.ServicePort{Port: 443, TargetPort: intstr.FromString("webhook")}),
		service("numbered", "127.1.0.2", hook, corev1.ServicePort{Port: 443, TargetPort: intstr.FromInt32(9443)},
			corev1.ServicePort{Port: 80}),
		service("misnamed", "127.1.0.3", hook, corev1.ServicePort{Port: 443, TargetPort: intstr.FromString("other")}),
		service("bare", "127.1.0.4", nil, corev1.ServicePort{Port: 443}),
		service("nobody", "127.1.0.5", map[string]string{"app": "nobody"}, corev1.ServicePort{Port: 443}),
		pod("a", true), pod("b", true), pod("simulated", true), pod("unready", false), gone,
	)
	for _, tt := range []struct {
		host string
		port int32
		want []string // in any order
		err  string
	}{
		{host: "127.1.0.1", port: 443, want: []string{"127.0.0.1:1", "127.0.0.1:2"}},
		{host: "127.1.0.2", port: 443, want: []string{"127.0.0.1:1", "127.0.0.1:2"}},
		{host: "127.1.0.2", port: 80, want: []string{"127.0.0.1:3"}},
		{host: "127.1.0.1", port: 80, err: "Service ns/named has no port 80"},
		{host: "127.1.0.3", port: 443, err: `a has no port named "other"`},
		{host: "127.1.0.3", port: 443, err: "unready is not ready"},
		{host: "127.1.0.3", port: 443, err: "gone is being deleted"},
		{host: "127.1.0.4", port: 443, err: "Service ns/bare selects no Pods"},
		{host: "127.1.0.5", port: 443, err: "Service ns/nobody has no Pod: none in namespace ns matches app=nobody"},
		{host: "node-1", port: 10250, want: []string{"127.0.0.1:5"}},
		{host: "node-1", port: 443, err: "is no IP address"},
		{host: "node-2", port: 10250, err: "is no IP address"},
		{host: "127.1.0.9", port: 443, err: "no Service has the address 127.1.0.9"},
		{host: "hook.ns.svc", port: 443, err: "is no IP address"},
	} {
		backend, err := s.Resolve(t.Context(), tt.host, tt.port)
		got := backend.Addresses
		slices.Sort(got)
		if tt.err == "" && (err != nil || !slices.Equal(got, tt.want)) {
			t.Errorf("%s:%d: %v, %v; want %v", tt.host, tt.port, got, err, tt.want)
		}
		if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s:%d: %v; want %s", tt.host, tt.port, err, tt.err)
		}
	}
	// The Pods take turns.
	first := map[string]bool{}
	for range 4 {
		got, err := s.Resolve(t.Context(), "127.1.0.1", 443)
		if err != nil {
			t.Fatal(err)
		}
		first[got.Addresses[0]] = true
	}
	if len(first) != 2 {
		t.Errorf("first came only %v", first)
	}
}

func TestResolveWaitsForWhatIsJustComing(t *testing.T) {
	s, api := resolver(t, addresses{"c/ns/a/9443": "127.0.0.1:1"},
		service("hook", "127.1.0.1", map[string]string{"app": "hook"},
			corev1.ServicePort{Port: 443, TargetPort: intstr.FromInt32(9443)}),
		pod("a", false))
	answer := make(chan error, 1)
	go func() {
		_, err := s.Resolve(t.Context(), "127.1.0.1", 443)
		answer <- err
	}()
	if _, err := api.CoreV1().Pods("ns").Update(t.Context(), pod("a", true), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("the Pod became ready meanwhile: %v", err)
	}
}

func TestResolveBeforeWatch(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := NewServices("c", addresses{}, nil).Resolve(ctx, "127.1.0.1", 443)
	if err == nil || !strings.Contains(err.Error(), "have not been read yet") {
		t.Errorf("%v", err)
	}
}

// TestResolveWaitsForTheFirstRead: an API server that has just joined answers before its Services were read.
func TestResolveWaitsForTheFirstRead(t *testing.T) {
	api := fake.NewClientset(
		service("hook", "127.1.0.1", map[string]string{"app": "hook"},
			corev1.ServicePort{Port: 443, TargetPort: intstr.FromInt32(9443)}),
		pod("a", true))
	s := NewServices("c", addresses{"c/ns/a/9443": "127.0.0.1:1"}, nil)
	answer := make(chan error, 1)
	go func() {
		_, err := s.Resolve(t.Context(), "127.1.0.1", 443)
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("before the Services were read: %v", err)
	case <-time.After(2 * catchUp):
	}
	ctx, end := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- s.Watch(ctx, api) }()
	if err := <-answer; err != nil {
		t.Errorf("they were read meanwhile: %v", err)
	}
	end()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}
