package kubelet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/slipway-k8s/slipway/lab/sandbox"
)

// Kubelet is the agent of one Node.
type Kubelet struct {
	cfg           Config
	client, admin kubernetes.Interface
	log           *slog.Logger
	objects       *objects
	events        record.EventRecorder // set by Run
	// machineID is the same at every start, bootID is not.
	machineID, bootID string

	node         atomic.Pointer[corev1.Node] // as last seen
	network      atomic.Bool                 // the CNI agent has been ready
	serving      atomic.Value                // string: what became of the serving certificate
	changed      notifier                    // of the network
	renewServing notifier                    // a serving certificate is to be requested

	host *sandbox.Network // of Pods on the host's network; nil where they share the lab's. Set by Run

	mu      sync.Mutex
	pods    map[types.UID]*pod
	pulled  map[string]bool // images
	stopped bool
	running sync.WaitGroup // the pods
}

// New returns the kubelet of a Node. It does nothing before Run.
func New(cfg Config) (*Kubelet, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := newClient(cfg.Client)
	if err != nil {
		return nil, fmt.Errorf("kubelet of node %s: %w", cfg.Node, err)
	}
	admin, err := newClient(cfg.Admin)
	if err != nil {
		return nil, fmt.Errorf("kubelet of node %s, client for its labels: %w", cfg.Node, err)
	}
	return newKubelet(cfg, client, admin), nil
}

func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	if config.QPS == 0 { // a kubelet's own defaults
		config.QPS, config.Burst = 50, 100
	}
	config.UserAgent = "slipway-lab-kubelet"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

func newKubelet(cfg Config, client, admin kubernetes.Interface) *Kubelet {
	machine := sha256.Sum256([]byte(cfg.Cluster + "/" + cfg.Node))
	k := &Kubelet{
		cfg: cfg, client: client, admin: admin,
		log:       cfg.Log.With("cluster", cfg.Cluster, "node", cfg.Node),
		objects:   newObjects(client),
		machineID: hex.EncodeToString(machine[:16]),
		bootID:    string(uuid.NewUUID()),
		pods:      map[types.UID]*pod{},
		pulled:    map[string]bool{},
	}
	k.serving.Store("")
	return k
}

// Run runs the node until ctx is done. Then it stops the Pods' processes, as a server that is switched off does,
// without a request to the API, and returns nil. It returns an error only if it could not start.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := k.prepareDir(); err != nil {
		return fmt.Errorf("kubelet of node %s: %w", k.cfg.Node, err)
	}
	if runtime := k.cfg.Sandboxes; runtime != nil {
		network, stop, err := k.networkFrom(runtime, true)
		if err != nil {
			return fmt.Errorf("kubelet of node %s: the host's network: %w", k.cfg.Node, err)
		}
		defer stop()
		k.host = network
		if err := k.cfg.Registry.addHosts(k.cfg.Cluster, k.hostsFile()); err != nil {
			return fmt.Errorf("kubelet of node %s: %w", k.cfg.Node, err)
		}
		defer k.cfg.Registry.removeHosts(k.cfg.Cluster, k.hostsFile())
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.client.CoreV1().Events("")})
	k.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: k.cfg.Node})

	// The informer starts after the registration: the registration is retried immediately, the back-off of an informer
	// grows to 30 s.
	if err := k.register(ctx); err != nil {
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { k.keepStatus(ctx) })
	wg.Go(func() { k.keepLease(ctx) })
	if k.cfg.ServingCSR {
		wg.Go(func() { k.keepServingCertificate(ctx) })
	}
	wg.Go(func() { k.serveAPI(ctx) })
	wg.Go(func() { k.watchPods(ctx) })
	wg.Wait()
	k.mu.Lock()
	k.stopped = true
	k.mu.Unlock()
	k.running.Wait()
	return nil
}

func (k *Kubelet) prepareDir() error {
	// Remains of an earlier kubelet: its processes have ended, and its Pods are mounted again.
	if err := os.RemoveAll(filepath.Join(k.cfg.Dir, "pods")); err != nil {
		return fmt.Errorf("remove the folders of Pods that ran before: %w", err)
	}
	for _, dir := range []string{k.cfg.Dir, k.podsDir(), k.keptDir(), k.logsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create its folder: %w", err)
		}
	}
	if err := os.Chmod(k.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("keep its folder from others: %w", err)
	}
	if _, err := os.Stat(k.networkFile()); err == nil {
		k.network.Store(true)
	}
	return nil
}

func (k *Kubelet) podsDir() string { return filepath.Join(k.cfg.Dir, "pods") }
func (k *Kubelet) logsDir() string { return filepath.Join(k.cfg.Dir, "logs") }

// watchPods runs a worker for every Pod bound to the Node, until ctx is done.
func (k *Kubelet) watchPods(ctx context.Context) {
	pods := k.client.CoreV1().Pods(corev1.NamespaceAll)
	own := fields.OneTermEqualSelector("spec.nodeName", k.cfg.Node).String()
	source := &cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = own
			return pods.List(ctx, options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = own
			return pods.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedInformer(source, &corev1.Pod{}, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.observe(ctx, object) },
		UpdateFunc: func(_, object any) { k.observe(ctx, object) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if api, ok := object.(*corev1.Pod); ok {
				k.vanish(api.UID)
			}
		},
	})
	if err != nil { // only of an informer that was stopped
		k.log.Error("Pods are not watched", "reason", err)
		return
	}
	left, err := os.ReadDir(k.keptDir())
	if err != nil {
		k.log.Warn("the volumes of Pods that are gone are not removed", "reason", err)
	}
	var tidying sync.WaitGroup
	defer tidying.Wait()
	tidying.Go(func() { k.removeKept(ctx, left, informer) })
	informer.Run(ctx.Done())
}

// observe passes a Pod's new state to its worker, which it starts for a new Pod.
func (k *Kubelet) observe(ctx context.Context, object any) {
	api, ok := object.(*corev1.Pod)
	if !ok || api.Spec.NodeName != k.cfg.Node {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[api.UID]; p != nil {
		p.observe(api)
		return
	}
	if k.stopped {
		return
	}
	p := newPod(k, api)
	k.pods[api.UID] = p
	k.running.Go(func() {
		p.run(ctx)
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.pods, api.UID)
	})
}

// vanish notifies a Pod's worker that the API has deleted the Pod.
func (k *Kubelet) vanish(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pods[uid]; p != nil {
		p.vanish()
	}
}

// pull waits for an image that the Node does not have yet.
func (k *Kubelet) pull(ctx context.Context, image string) bool {
	k.mu.Lock()
	has := k.pulled[image]
	k.mu.Unlock()
	if !has && !sleep(ctx, k.cfg.Latency.PullImage) {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pulled[image] = true
	return true
}

// Status is the status of a kubelet.
type Status struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason"` // why the Node is ready or not
	// Serving is the state of the serving certificate; empty if none is requested.
	Serving string      `json:"serving,omitempty"`
	Pods    []PodStatus `json:"pods"`
}

// PodStatus is the status of a Pod.
type PodStatus struct {
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	Phase      string            `json:"phase"`
	Ready      bool              `json:"ready"`
	StartedAt  time.Time         `json:"startedAt"`
	Containers []ContainerStatus `json:"containers"`
}

// ContainerStatus is what runs for a container, and its state.
type ContainerStatus struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	Fidelity string `json:"fidelity"` // Real, StandIn or Simulated
	Note     string `json:"note,omitempty"`
	State    string `json:"state"` // "running", or the reason why not
	Ready    bool   `json:"ready"`
	Restarts int32  `json:"restarts"`
	PID      int    `json:"pid,omitempty"` // 0: no process
}

// Status returns the status of the Node and its Pods.
func (k *Kubelet) Status() Status {
	ready := k.readyCondition()
	s := Status{
		Cluster: k.cfg.Cluster, Node: k.cfg.Node,
		Ready: ready.Status == corev1.ConditionTrue && k.node.Load() != nil, Reason: ready.Message,
		Serving: k.serving.Load().(string), Pods: []PodStatus{},
	}
	if k.node.Load() == nil {
		s.Reason = "the Node is not registered yet"
	}
	k.mu.Lock()
	pods := make([]*pod, 0, len(k.pods))
	for _, p := range k.pods {
		pods = append(pods, p)
	}
	k.mu.Unlock()
	for _, p := range pods {
		s.Pods = append(s.Pods, p.describe())
	}
	slices.SortFunc(s.Pods, func(a, b PodStatus) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return s
}
