package status

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/why"
	"github.com/slipway-k8s/slipway/platform"
)

// Overview is the current state of the cluster.
type Overview struct {
	Waiting      why.Answer          `json:"waiting"` // For is empty where nothing is missing
	Sentence     string              `json:"sentence,omitempty"`
	Lost         *Lost               `json:"lost,omitempty"`  // nil: the cluster's API answers, or has never done so
	Pivot        *Pivot              `json:"pivot,omitempty"` // nil: none is under way
	Servers      []Server            `json:"servers"`
	Etcd         []EtcdMember        `json:"etcdMembers"`
	Releases     []kube.ReleaseState `json:"releases"`
	Targets      []hetzner.Target    `json:"loadBalancerTargets"`
	Certificates []Certificate       `json:"certificates"`
	Cost         hetzner.Price       `json:"costAMonth"`
	Unknown      []Unasked           `json:"unknown"`
}

// Server is a server of the cluster with the Machine and the Node that belong to it.
type Server struct {
	Name    string `json:"name"`
	ID      int64  `json:"id,omitempty"`
	State   string `json:"state,omitempty"` // Hetzner's word
	Machine string `json:"machine,omitempty"`
	Phase   string `json:"phase,omitempty"` // Cluster API's word
	Talos   string `json:"talos,omitempty"` // answers, or why it does not
	Node    string `json:"node,omitempty"`  // Ready or not
}

// EtcdMember is a member of the cluster's etcd.
type EtcdMember struct {
	Name    string `json:"name"`
	Learner bool   `json:"learner"` // does not vote yet
}

// Certificate is one that the operator has to renew.
type Certificate struct {
	Of   string    `json:"of"`
	Ends time.Time `json:"ends"`
}

// Unasked is what could not be asked, and why.
type Unasked struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// gathering collects answers that come at once.
type gathering struct {
	mu  sync.Mutex
	out Overview
}

func (o *gathering) unknown(what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out.Unknown = append(o.out.Unknown, Unasked{what, why.ShortError(err.Error())})
}

// Overview asks every source about the cluster. It never fails: what could not be asked is in Unknown, with the reason.
func (l *Reader) Overview() Overview {
	o := &gathering{out: Overview{
		Servers: []Server{}, Etcd: []EtcdMember{}, Releases: []kube.ReleaseState{}, Targets: []hetzner.Target{},
		Certificates: []Certificate{}, Unknown: []Unasked{},
	}}
	var asking sync.WaitGroup
	asking.Go(func() { o.cluster(l) })
	asking.Go(func() { o.certificates(l.tools) })
	if l.tools.Hetzner != nil {
		asking.Go(func() { o.targets(l.hetzner, l.cfg, l.tools) })
		asking.Go(func() { o.cost(l.hetzner, l.cfg, l.tools) })
	}
	asking.Wait()
	l.enough()
	slices.SortFunc(o.out.Unknown, func(a, b Unasked) int { return cmp.Compare(a.What, b.What) })
	return o.out
}

// cluster is about what Cluster API, Hetzner, Talos, the cluster's own API and etcd tell, each by itself.
func (o *gathering) cluster(l *Reader) {
	clusters, cloud := l.seeClusters(), async(l.seeCloud)
	objects := async(func() seenObjects { return l.seeObjects(clusters) })
	api := async(func() seenAPI { return l.seeAPI(clusters) })
	servers := async(func() seenTalos { return l.seeTalos(cloud, objects, clusters) })

	at := time.Now().UTC().Truncate(time.Second)
	self, beside := clusters.self.get(), clusters.beside.get()
	begun := !self.none() || !beside.none()
	told := objects.get()
	s := told.told
	s.At, s.Silent, s.Pauses = at, map[string]string{}, l.recorded.Pauses
	if told.err != nil && begun {
		s.Silent[why.Management] = told.err.Error()
		o.unknown("the objects of Cluster API", told.err)
	}
	cloud.get().Tell(&s)
	if silent := s.Silent[why.Hetzner]; silent != "" {
		o.unknown("the servers at Hetzner", errors.New(silent))
	}
	s.Talos = servers.get().answers
	o.members(servers.get())
	if seen := api.get(); seen.err != nil {
		s.API = seen.err.Error()
		if !self.none() {
			o.unknown("the nodes, Pods and Helm releases", seen.err)
		}
	} else {
		seen.workload.Tell(l.cfg, &s)
		o.releases(seen)
	}
	if silent := s.Silent[why.Workload]; silent != "" {
		o.unknown("some of the nodes and Pods", errors.New(silent))
	}
	s.Images = l.observer.ReadImages(l.hetzner.ctx, s.Servers)
	s.Lost = l.observer.ReadEndpoint(l.hetzner.ctx, situation.WatchedOf(l.cfg), s.Infrastructure)
	o.out.Servers = serversOf(s)
	o.out.Waiting = l.waiting(s, self, beside)
	o.out.Sentence = o.out.Waiting.Sentence()
	o.out.Lost = l.lost(s, self, cloud.get(), servers.get())
	o.out.Pivot = l.pivot(self, beside)
}

// NoManagement is what a cluster is waited for that has no management cluster yet.
const NoManagement = "the management cluster"

// waiting is what the cluster is waited for, if anything.
func (l *Reader) waiting(s why.Situation, self, beside seenSide) why.Answer {
	switch {
	case self.none() && beside.none():
		return why.Answer{For: NoManagement, Missing: "there is none yet"}
	case s.Silent[why.Management] != "" && (beside.none() || beside.answers()): // it is the cluster itself that would tell
		return why.Answer{For: "the cluster", Missing: why.ShortError(s.Silent[why.Management])}
	}
	return l.observer.Explain(s)
}

// seeObjects reads the objects of Cluster API from the cluster that manages.
func (l *Reader) seeObjects(clusters lookedClusters) (seen seenObjects) {
	manager := clusters.manager.get()
	if manager == nil {
		if err := clusters.beside.get().err; err != nil && !clusters.beside.get().none() && !clusters.self.get().answers() {
			return seenObjects{err: err}
		}
		if err := clusters.self.get().err; err != nil {
			return seenObjects{err: err}
		}
		return seenObjects{err: errors.New("neither the cluster nor a management cluster holds its Cluster object")}
	}
	seen.told, seen.err = kube.Within(l.ctx, func() (why.Situation, error) {
		return situation.ReadManagement(l.ctx, manager, situation.WatchedOf(l.cfg))
	})
	return seen
}

// seenAPI is what the cluster's own API says.
type seenAPI struct {
	cluster  *kube.Cluster
	workload situation.SeenWorkload
	releases []kube.ReleaseState
	relErr   error
	err      error // why it does not answer
}

// seeAPI asks the cluster by the kubeconfig in the state folder, or, before there is one, by what the control plane
// provider keeps.
func (l *Reader) seeAPI(clusters lookedClusters) (seen seenAPI) {
	self := clusters.self.get()
	switch {
	case self.uid != "":
		seen.cluster = self.cluster
	case !self.none():
		return seenAPI{err: self.err}
	default:
		manager := clusters.manager.get()
		if manager == nil {
			return seenAPI{err: errors.New("there is no kubeconfig yet")}
		}
		cluster, err := kube.Within(l.ctx, func() (*kube.Cluster, error) {
			cluster, _, err := l.observer.ReachAPI(l.ctx, manager, l.cfg.ClusterName)
			return cluster, err
		})
		if err != nil {
			return seenAPI{err: err}
		}
		seen.cluster = cluster
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		workload, err := kube.Within(l.ctx,
			func() (situation.SeenWorkload, error) { return situation.ReadWorkload(l.ctx, seen.cluster), nil })
		workload.Err = cmp.Or(workload.Err, err)
		seen.workload = workload
	})
	asking.Go(func() {
		seen.releases, seen.relErr = kube.Within(l.ctx,
			func() ([]kube.ReleaseState, error) { return seen.cluster.Releases(l.ctx) })
	})
	asking.Wait()
	return seen
}

// serversOf joins what is known of each server.
func serversOf(s why.Situation) []Server {
	all := map[string]*Server{}
	of := func(name string) *Server {
		if all[name] == nil {
			all[name] = &Server{Name: name}
		}
		return all[name]
	}
	for _, c := range s.Cloud {
		one := of(c.Name)
		one.ID, one.State = c.ID, c.Status
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		one := of(cmp.Or(capi.Text(m, "spec", "infrastructureRef", "name"), m.GetName()))
		one.Machine, one.Phase = m.GetName(), capi.Text(m, "status", "phase")
	}
	for name, t := range s.Talos {
		of(name).Talos = cmp.Or(why.ShortError(t.Trouble), "answers")
	}
	for _, n := range s.Nodes {
		one := of(n.Name)
		if one.Node = "Ready"; !n.Ready {
			one.Node = "not Ready"
		}
	}
	found := []Server{}
	for _, one := range all {
		found = append(found, *one)
	}
	slices.SortFunc(found, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// members are etcd's, as one server told them.
func (o *gathering) members(seen seenTalos) {
	if seen.etcdErr != nil && (len(seen.answers) > 0 || !errors.Is(seen.etcdErr, fs.ErrNotExist)) {
		o.unknown("etcd's members", seen.etcdErr)
	}
	for _, one := range seen.members {
		o.out.Etcd = append(o.out.Etcd, EtcdMember{Name: one.Name, Learner: one.Learner})
	}
}

func (o *gathering) releases(seen seenAPI) {
	if seen.relErr != nil {
		o.unknown("the Helm releases", seen.relErr)
		return
	}
	o.out.Releases = append(o.out.Releases, seen.releases...)
}

func (o *gathering) targets(q *inquiry, cfg config.Config, tools platform.Tools) {
	targets, err := hetzner.Targets(q.ctx, tools.Hetzner, cfg.ClusterName)
	if err != nil {
		o.unknown("the load balancer's targets", q.why(err))
		return
	}
	o.out.Targets = targets
}

func (o *gathering) cost(q *inquiry, cfg config.Config, tools platform.Tools) {
	inventory, err := hetzner.TakeInventory(q.ctx, tools.Hetzner)
	if err != nil {
		o.unknown("what it costs", q.why(err))
		return
	}
	o.out.Cost = hetzner.Total(inventory.Of(cfg.ClusterName))
}

// certificates are those of the files that open the cluster.
func (o *gathering) certificates(tools platform.Tools) {
	add := func(of, file string, ends func([]byte) (time.Time, error)) {
		data, err := tools.Files.Read(file)
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		var at time.Time
		if err == nil {
			at, err = ends(data)
		}
		if err != nil {
			o.unknown("when "+of+" ends", err)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.out.Certificates = append(o.out.Certificates, Certificate{of, at.UTC()})
	}
	add("kubeconfig", platform.Kubeconfig, kubeconfigEnds(false))
	add("talosconfig", platform.Talosconfig, func(data []byte) (time.Time, error) {
		credentials, err := talos.Parse(data)
		if err != nil {
			return time.Time{}, err
		}
		return credentials.Expires()
	})
	add("the cluster's authority", platform.Kubeconfig, kubeconfigEnds(true))
}

// kubeconfigEnds reads when a kubeconfig's client certificate, or the authority's in it, ends.
func kubeconfigEnds(authority bool) func([]byte) (time.Time, error) {
	return func(data []byte) (time.Time, error) {
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			return time.Time{}, err
		}
		encoded := config.CertData
		if authority {
			encoded = config.CAData
		}
		block, _ := pem.Decode(encoded)
		if block == nil {
			return time.Time{}, fmt.Errorf("there is no certificate in it")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, err
		}
		return certificate.NotAfter, nil
	}
}
