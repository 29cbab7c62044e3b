package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/lab/proc"
)

// harness is a kubelet over a fake API, with real processes.
type harness struct {
	*Kubelet
	t    *testing.T
	api  *fake.Clientset
	stop func() // returns when Run has
	// tokens counts the requested tokens; life is their validity.
	tokens *atomic.Int32
}

// start runs a kubelet until the test's end. Objects exist in the API before; edit changes the configuration.
func start(t *testing.T, edit func(*Config), objects ...runtime.Object) *harness {
	t.Helper()
	return startOn(t, fake.NewClientset(objects...), edit)
}

func startOn(t *testing.T, api *fake.Clientset, edit func(*Config)) *harness {
	t.Helper()
	supervisor := proc.New()
	t.Cleanup(func() {
		if err := supervisor.StopAll(context.Background(), 0); err != nil {
			t.Error(err)
		}
	})
	cfg := Config{
		Cluster: "test", Node: "node-1", InternalIP: "127.0.0.9", KubeletVersion: "v1.32.3",
		Client: &rest.Config{Host: "https://127.0.0.9:6443",
			TLSClientConfig: rest.TLSClientConfig{CAData: []byte("authority")}},
		Dir: filepath.Join(t.TempDir(), "kubelet"), Processes: supervisor, Registry: NewRegistry(),
		Latency: Latency{FirstProbe: 20 * time.Millisecond, Restart: 20 * time.Millisecond,
			RestartMost: 100 * time.Millisecond},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if edit != nil {
		edit(&cfg)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	w := &harness{t: t, api: api, tokens: &atomic.Int32{}}
	api.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		life := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		request.Status.Token = fmt.Sprintf("token-%d", w.tokens.Add(1))
		request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(life))
		return true, request, nil
	})
	w.Kubelet = newKubelet(cfg, api, api)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	w.stop = func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			ended <- nil
		case <-time.After(20 * time.Second):
			t.Error("the kubelet did not end within 20 s")
		}
	}
	t.Cleanup(w.stop)
	eventually(t, "the kubelet watches Pods", func() (string, bool) { return "", watches(api, "pods") })
	return w
}

// watches says whether the fake has a watch for a resource: that watch does not see earlier changes.
func watches(api *fake.Clientset, resource string) bool {
	return slices.ContainsFunc(api.Actions(), func(a clienttesting.Action) bool { return a.Matches("watch", resource) })
}

// pod returns a Pod on the test's Node.
func newTestPod(name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid"),
			Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			NodeName: "node-1", RestartPolicy: corev1.RestartPolicyAlways, ServiceAccountName: "runner",
			Containers: []corev1.Container{{Name: "main", Image: image}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func (w *harness) create(pod *corev1.Pod) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Pods(pod.Namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// awaitPod waits for a state of a Pod and returns it.
func (w *harness) awaitPod(name, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var pod *corev1.Pod
	eventually(w.t, what, func() (string, bool) {
		var err error
		pod, err = w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprintf("%+v", pod.Status), holds(pod)
	})
	return pod
}

func (w *harness) awaitReady(name string) *corev1.Pod {
	w.t.Helper()
	return w.awaitPod(name, "Pod "+name+" is Ready", func(p *corev1.Pod) bool { return isReady(p.Status) })
}

// markDeleted does what an API server does with a deletion that has a grace period.
func (w *harness) markDeleted(name string, grace int64) {
	w.t.Helper()
	pod, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	now := metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &grace
	if _, err := w.api.CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// processes returns the ids of the processes that run.
func (w *harness) processes() []int {
	var ids []int
	for _, p := range w.cfg.Processes.List() {
		ids = append(ids, p.PID)
	}
	return ids
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
