// Package situation reads the state of a cluster from Hetzner, the management cluster, the workload cluster and Talos.
// Package why explains it. It also deletes Machines that can never become servers, where the operator agreed.
package situation

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// situationWithin bounds each question about a situation; all are asked at once.
	situationWithin = 3 * time.Second
	// cloudFresh is how long what Hetzner answered counts while Cluster API's objects change, cloudStale while they do
	// not: its limit is 3600 requests an hour for all clients of the project.
	cloudFresh = 5 * time.Second
	cloudStale = 20 * time.Second
	// failuresSince is how old a failed action of Hetzner's may be to be reported.
	failuresSince = time.Hour
	// eventsSince is how old a warning may be to be reported.
	eventsSince = time.Hour
)

// Watched is the workload cluster as far as its situation is explained from it.
type Watched struct {
	Namespace          string // of its objects in the cluster that manages it
	Name, ControlPlane string
	LoadBalancerIP     string // as the journal has it; empty: not known
}

// Observer reads the situation of a cluster, for every wait that says why it waits. It asks Hetzner, the management
// cluster, the workload cluster and Talos, and changes nothing but Machines that can never become servers.
type Observer struct {
	Cfg     config.Config
	Tools   platform.Tools
	Sources render.Sources
	Began   time.Time // failures before it may have been repaired since; zero: every failure counts
	cloud   cloudSight
}

// WatchedOf names the objects of the configured cluster.
func WatchedOf(cfg config.Config) Watched {
	return Watched{Namespace: cfg.Namespace, Name: cfg.ClusterName, ControlPlane: cfg.ControlPlaneName()}
}

// Observe looks at everything that can tell why a cluster is not further, all at once. It never fails: who does not
// answer is silent in it. uid is the workload cluster's, where that answers.
func (o *Observer) Observe(ctx context.Context, mgmt *kube.Cluster, c Watched) (s why.Situation, uid string) {
	ctx, cancel := context.WithTimeout(ctx, situationWithin)
	defer cancel()
	at := time.Now().UTC().Truncate(time.Second)
	var cloud Cloud
	var asking sync.WaitGroup
	asking.Go(func() { cloud = o.cloud.read(ctx, o.Cfg, o.Tools) })
	s, silence := kube.Within(ctx, func() (why.Situation, error) { return ReadManagement(ctx, mgmt, c) })
	asking.Wait()
	s.At, s.Silent = at, map[string]string{}
	cloud.Tell(&s)
	if silence != nil {
		s.Silent[why.Management] = silence.Error()
		return s, ""
	}
	o.cloud.noticed(s)
	routes := MachineRoutes(s)
	asking.Go(func() { uid = o.askWorkload(ctx, mgmt, c, &s) })
	asking.Go(func() { s.Talos = o.readTalos(ctx, mgmt, c, routes) })
	asking.Go(func() { s.Images = o.ReadImages(ctx, s.Servers) })
	asking.Go(func() { s.Lost = o.lost(ctx, c, s.Infrastructure) })
	asking.Wait()
	return s, uid
}

// Explain is why.Explain, with the command to type where something is to be done about a finding.
func (o *Observer) Explain(s why.Situation) why.Answer {
	a := why.Explain(s)
	for i := range a.Findings {
		if f := &a.Findings[i]; len(f.Target) > 0 {
			f.Do += ": " + o.Tools.Command(f.Target...)
		}
	}
	return a
}

// ReadManagement reads Cluster API's objects and nothing else. What is not there is left out.
func ReadManagement(ctx context.Context, mgmt *kube.Cluster, c Watched) (s why.Situation, err error) {
	one := func(kind schema.GroupVersionKind, name string, into **unstructured.Unstructured) func() error {
		return func() error {
			o, err := capi.Get(ctx, mgmt, c.Namespace, kind, name)
			if err == nil {
				*into = o
			}
			return err
		}
	}
	many := func(kind schema.GroupVersionKind, into *[]unstructured.Unstructured) func() error {
		return func() error {
			all, err := capi.List(ctx, mgmt, c.Namespace, kind, c.Name)
			*into = all
			return err
		}
	}
	err = together(
		one(capi.ClusterKind, c.Name, &s.Cluster),
		one(capi.HetznerClusterKind, c.Name, &s.Infrastructure),
		one(capi.TalosControlPlaneKind, c.ControlPlane, &s.ControlPlane),
		many(capi.MachineKind, &s.Machines), many(capi.HCloudMachineKind, &s.Servers), many(capi.TalosConfigKind, &s.Configs),
		// They add to what the objects say; a cluster that cannot tell them is not silent.
		func() error { s.Events, _ = warnings(ctx, mgmt, c.Namespace); return nil },
	)
	if err != nil {
		return why.Situation{}, err
	}
	s.Outdated = outdatedMachines(s.ControlPlane, s.Machines, s.Configs) // by what is left out now
	for _, o := range []*unstructured.Unstructured{s.Cluster, s.Infrastructure, s.ControlPlane} {
		if o != nil {
			strip(o)
		}
	}
	for _, all := range [][]unstructured.Unstructured{s.Machines, s.Servers, s.Configs} {
		for i := range all {
			strip(&all[i])
		}
	}
	return s, nil
}

// together does everything at once. That something is absent is no error.
func together(questions ...func() error) error {
	errs := make([]error, len(questions))
	var asking sync.WaitGroup
	for i, ask := range questions {
		asking.Go(func() {
			if err := ask(); !kube.Absent(err) {
				errs[i] = err
			}
		})
	}
	asking.Wait()
	for _, err := range errs { // all say the same where there is no answer
		if err != nil {
			return err
		}
	}
	return nil
}

// strip leaves out of an object what tells nothing of its state: who wrote which field, and the machines'
// configuration, in which people may have secrets.
func strip(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	o.SetFinalizers(nil)
	o.SetOwnerReferences(nil)
	unstructured.RemoveNestedField(o.Object, "status", "v1beta2") // the same conditions once more
	unstructured.RemoveNestedField(o.Object, "spec", "controlPlaneConfig")
	if o.GetKind() == capi.TalosConfigKind.Kind {
		unstructured.RemoveNestedField(o.Object, "spec")
		unstructured.RemoveNestedField(o.Object, "status", "talosConfig")
	}
}

// warnings are the events of a namespace that tell of trouble, the newest first.
func warnings(ctx context.Context, c *kube.Cluster, namespace string) ([]why.Event, error) {
	l := &corev1.EventList{}
	if err := c.List(ctx, l, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list the events of namespace %s: %w", namespace, err)
	}
	var found []why.Event
	for _, e := range l.Items {
		if e.Type != corev1.EventTypeWarning {
			continue
		}
		last := e.LastTimestamp.Time
		if e.Series != nil {
			last = e.Series.LastObservedTime.Time
		}
		if last.IsZero() {
			last = e.EventTime.Time
		}
		if time.Since(last) > eventsSince {
			continue
		}
		found = append(found, why.Event{Kind: e.InvolvedObject.Kind, Name: e.InvolvedObject.Name, Reason: e.Reason,
			Message: e.Message, Last: last.UTC()})
	}
	slices.SortStableFunc(found, func(a, b why.Event) int { return b.Last.Compare(a.Last) })
	seen := map[why.Event]bool{}
	return slices.DeleteFunc(found, func(e why.Event) bool { // of the same the newest
		key := why.Event{Kind: e.Kind, Name: e.Name, Reason: e.Reason}
		again := seen[key]
		seen[key] = true
		return again
	}), nil
}

// askWorkload asks the workload cluster through its load balancer, and if it answers, about its nodes and the system's
// Pods.
func (o *Observer) askWorkload(ctx context.Context, mgmt *kube.Cluster, c Watched, s *why.Situation) (uid string) {
	workload, uid, err := o.ReachAPI(ctx, mgmt, c.Name)
	if err != nil {
		s.API = err.Error()
		return ""
	}
	ReadWorkload(ctx, workload).Tell(o.Cfg, s)
	return uid
}

// SeenWorkload is what the workload cluster's API says of it.
type SeenWorkload struct {
	nodes  []corev1.Node
	pods   []why.Pod
	events []why.Event
	Err    error // why not all of it could be read
}

// ReadWorkload reads the workload cluster's nodes and the system's Pods.
func ReadWorkload(ctx context.Context, workload *kube.Cluster) (seen SeenWorkload) {
	seen.Err = together(
		func() error {
			nodes := &corev1.NodeList{}
			err := workload.List(ctx, nodes)
			seen.nodes = nodes.Items
			return err
		},
		func() (err error) { seen.pods, err = unreadyPods(ctx, workload); return err },
		func() (err error) { seen.events, err = warnings(ctx, workload, metav1.NamespaceSystem); return err },
	)
	return seen
}

// Tell writes it into a situation, in which Hetzner and the management cluster have been heard.
func (w SeenWorkload) Tell(cfg config.Config, s *why.Situation) {
	network, version := networkOf(cfg), capi.Text(s.ControlPlane, "spec", "version")
	var servers map[string]hetzner.Server
	if s.Silent[why.Hetzner] == "" {
		servers = map[string]hetzner.Server{}
	}
	for _, server := range s.Cloud {
		one := hetzner.Server{ID: server.ID, Name: server.Name, Status: server.Status}
		servers[one.ProviderID()] = one
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		one := why.Node{Name: n.Name, Troubles: NodeProblems(n, servers, network, version),
			Mismatch: mismatchOf(n, s.Machines)}
		one.Ready, _ = NodeReady(n)
		s.Nodes = append(s.Nodes, one)
	}
	slices.SortFunc(s.Nodes, func(a, b why.Node) int { return strings.Compare(a.Name, b.Name) })
	s.Pods, s.Events = w.pods, append(s.Events, w.events...)
	if w.Err != nil {
		s.Silent[why.Workload] = w.Err.Error()
	}
}

func networkOf(cfg config.Config) netip.Prefix {
	network, _ := netip.ParsePrefix(cfg.NetworkCIDR) // Config.Validate has seen it
	return network
}

// ReachAPI connects to the workload cluster by the kubeconfig that the control plane provider keeps. Its error is why
// it does not answer.
func (o *Observer) ReachAPI(ctx context.Context, mgmt *kube.Cluster, cluster string) (*kube.Cluster, string, error) {
	config, err := connect.WorkloadKubeconfig(ctx, mgmt, o.Cfg.Namespace, cluster)
	if kube.Absent(err) {
		return nil, "", errors.New("there is no kubeconfig yet")
	}
	if err != nil {
		return nil, "", err
	}
	workload, err := o.Tools.Connect(config)
	if err != nil {
		return nil, "", err
	}
	if err := workload.Ready(ctx); err != nil {
		return nil, "", err
	}
	uid, err := workload.UID(ctx)
	return workload, uid, err
}

// ReadImages asks how many images the servers can be made from, where CAPH says that it did not find exactly one.
func (o *Observer) ReadImages(ctx context.Context, servers []unstructured.Unstructured) *why.Images {
	for i := range servers {
		if t := capi.Troubles(&servers[i]); !strings.Contains(t, "ImageNotFound") && !strings.Contains(t, "ImageAmbiguous") {
			continue
		}
		name := capi.Text(&servers[i], "spec", "imageName")
		kind, err := hetzner.FindServerType(ctx, o.Tools.Hetzner, capi.Text(&servers[i], "spec", "type"))
		if err != nil {
			return nil
		}
		if found, err := hetzner.FindImages(ctx, o.Tools.Hetzner, name, kind.Architecture); err == nil {
			return &why.Images{Name: name, Found: len(found)}
		}
	}
	return nil
}

// lost is ReadEndpoint, for all waits of a run together: it asks Hetzner again where its last answer is old.
func (o *Observer) lost(ctx context.Context, c Watched, infrastructure *unstructured.Unstructured) string {
	s := &o.cloud.endpoint
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.address != c.LoadBalancerIP || time.Since(s.at) >= cloudFresh {
		s.address, s.lost = c.LoadBalancerIP, o.ReadEndpoint(ctx, c, infrastructure)
		s.at = time.Now()
	}
	return s.lost
}

// ReadEndpoint tells why the cluster's address will never answer again, where it is lost.
func (o *Observer) ReadEndpoint(ctx context.Context, c Watched, infrastructure *unstructured.Unstructured) string {
	if infrastructure == nil || c.LoadBalancerIP == "" || capi.Text(infrastructure, "status", "controlPlaneLoadBalancer",
		"ipv4") == c.LoadBalancerIP {
		return ""
	}
	if lost := CheckEndpoint(ctx, o.Cfg, o.Tools, o.Sources, c.LoadBalancerIP); IsLost(lost) {
		return lost.Error()
	}
	return ""
}

const (
	// becauseAfter is how long a wait lasts before it asks why: most are over sooner.
	becauseAfter = time.Second
	// becauseEvery is the shortest time between two such questions.
	becauseEvery = 2 * time.Second
)

// Progress says how far the cluster is, and what keeps it.
func (o *Observer) Progress(mgmt *kube.Cluster, c Watched) wait.Reason {
	return o.asking(mgmt, c, why.Answer.Summary, why.Answer.Terminal)
}

// Obstacles lists what blocks the cluster, for a wait that says itself how far it is.
func (o *Observer) Obstacles(mgmt *kube.Cluster, c Watched) wait.Reason {
	return o.asking(mgmt, c, why.Answer.Troubles, why.Answer.Terminal)
}

// ObstaclesOfWorkers is Obstacles for a wait for workers, which a limit of the project ends, too.
func (o *Observer) ObstaclesOfWorkers(mgmt *kube.Cluster, c Watched) wait.Reason {
	return o.asking(mgmt, c, why.Answer.Troubles, why.Answer.TerminalForWorkers)
}

// asking looks at the cluster, not at once and not too often.
func (o *Observer) asking(mgmt *kube.Cluster, c Watched, tell func(why.Answer) string,
	ends func(why.Answer, time.Time) *why.Finding) wait.Reason {
	next := time.Now().Add(becauseAfter)
	said := ""
	return func(ctx context.Context) (string, error) {
		if time.Now().Before(next) {
			return said, nil
		}
		s, _ := o.Observe(ctx, mgmt, c)
		next = time.Now().Add(becauseEvery)
		did, err := DeleteUnmade(ctx, o.Tools, mgmt, c, s)
		if err == nil && did == "" {
			did, err = DeleteLeft(ctx, o.Cfg, o.Tools, mgmt, c, s)
		}
		if err != nil {
			did = "could not delete a Machine that is of no use: " + why.ShortError(err.Error())
		}
		if did != "" {
			said = did
			return said, nil
		}
		a := o.Explain(s)
		if terminal := ends(a, o.Began); terminal != nil {
			return "", terminal
		}
		said = tell(a)
		return said, nil
	}
}
