package steps

import (
	"cmp"
	"context"
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

	"github.com/slipway-k8s/slipway/internal/hetzner"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/talos"
	"github.com/slipway-k8s/slipway/internal/why"
)

// overviewWithin bounds each question of an overview; all are asked at once, but for those that need another's answer.
const overviewWithin = 5 * time.Second

// Overview is the cluster as it stands now.
type Overview struct {
	Waiting      why.Answer          `json:"waiting"` // For is empty where nothing is missing
	Sentence     string              `json:"sentence,omitempty"`
	Servers      []ServerOverview    `json:"servers"`
	Etcd         []EtcdMember        `json:"etcdMembers"`
	Releases     []kube.ReleaseState `json:"releases"`
	Targets      []hetzner.Target    `json:"loadBalancerTargets"`
	Certificates []Certificate       `json:"certificates"`
	Cost         hetzner.Price       `json:"costAMonth"`
	Unknown      []Unasked           `json:"unknown"`
}

// ServerOverview is a server of the cluster with the Machine and the Node that belong to it.
type ServerOverview struct {
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

// Certificate is one that somebody has to renew.
type Certificate struct {
	Of   string    `json:"of"`
	Ends time.Time `json:"ends"`
}

// Unasked is what could not be asked, and why.
type Unasked struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// overviewing collects answers that come at once.
type overviewing struct {
	mu  sync.Mutex
	out Overview
}

func (o *overviewing) unknown(what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out.Unknown = append(o.out.Unknown, Unasked{what, why.Unseen(err.Error())})
}

// Overview asks everybody about the cluster. It never fails: what could not be asked is in Unknown, with the reason.
func (p *Plan) Overview(ctx context.Context) Overview {
	ctx, cancel := context.WithTimeout(ctx, overviewWithin)
	defer cancel()
	b := p.b
	o := &overviewing{out: Overview{
		Servers: []ServerOverview{}, Etcd: []EtcdMember{}, Releases: []kube.ReleaseState{}, Targets: []hetzner.Target{}, Certificates: []Certificate{}, Unknown: []Unasked{},
	}}
	var asking sync.WaitGroup
	asking.Go(func() { o.cluster(ctx, b) })
	asking.Go(func() { o.releases(ctx, b) })
	asking.Go(func() { o.certificates(b) })
	if b.tools.Hetzner != nil {
		asking.Go(func() { o.targets(ctx, b) })
		asking.Go(func() { o.cost(ctx, b) })
	}
	asking.Wait()
	slices.SortFunc(o.out.Unknown, func(a, b Unasked) int { return cmp.Compare(a.What, b.What) })
	return o.out
}

// cluster is about what Cluster API, Hetzner, Talos and the nodes tell, and etcd's members.
func (o *overviewing) cluster(ctx context.Context, b *bootstrapper) {
	mgmt, err := b.manager(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		o.out.Waiting = why.Answer{For: "the management cluster", Missing: "there is none yet"}
		o.out.Sentence = o.out.Waiting.Sentence()
		return
	}
	if err != nil {
		o.unknown("the cluster", err)
		o.out.Waiting = why.Answer{For: "the cluster", Missing: why.Unseen(err.Error())}
		o.out.Sentence = o.out.Waiting.Sentence()
		return
	}
	s, _ := b.situation(ctx, mgmt, b.watched())
	for _, silent := range s.Silent {
		o.unknown("some of the cluster", errors.New(silent))
	}
	o.out.Waiting = b.explainSituation(s)
	o.out.Sentence = o.out.Waiting.Sentence()
	o.out.Servers = serversOf(s)
	o.etcd(ctx, b, mgmt, s)
}

// serversOf joins what is known of each server.
func serversOf(s why.Situation) []ServerOverview {
	all := map[string]*ServerOverview{}
	of := func(name string) *ServerOverview {
		if all[name] == nil {
			all[name] = &ServerOverview{Name: name}
		}
		return all[name]
	}
	for _, c := range s.Cloud {
		one := of(c.Name)
		one.ID, one.State = c.ID, c.Status
	}
	for i := range s.Machines {
		m := &s.Machines[i]
		one := of(cmp.Or(text(m, "spec", "infrastructureRef", "name"), m.GetName()))
		one.Machine, one.Phase = m.GetName(), text(m, "status", "phase")
	}
	for name, t := range s.Talos {
		of(name).Talos = cmp.Or(why.Unseen(t.Trouble), "answers")
	}
	for _, n := range s.Nodes {
		one := of(n.Name)
		if one.Node = "Ready"; !n.Ready {
			one.Node = "not Ready"
		}
	}
	found := []ServerOverview{}
	for _, one := range all {
		found = append(found, *one)
	}
	slices.SortFunc(found, func(a, b ServerOverview) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// etcd asks one server after another whose Talos answers, until one tells the members.
func (o *overviewing) etcd(ctx context.Context, b *bootstrapper, mgmt *kube.Cluster, s why.Situation) {
	config, err := secretValue(ctx, mgmt, b.cfg.ClusterName+"-talosconfig", "talosconfig")
	if kube.Absent(err) {
		return // there are no servers yet
	}
	var t TalosClient
	if err == nil {
		t, err = b.tools.Talos(config)
	}
	if err != nil {
		o.unknown("etcd's members", err)
		return
	}
	err = errors.New("no server's etcd runs")
	for _, m := range controlPlaneMachines(s.Machines) {
		address := append(addresses(&m, addressExternal), addresses(&m, addressInternal)...)
		if !s.Talos[text(&m, "spec", "infrastructureRef", "name")].Etcd || len(address) == 0 {
			continue
		}
		var members []talos.EtcdMember
		if members, err = t.EtcdMembers(ctx, address[0]); err == nil {
			for _, one := range members {
				o.out.Etcd = append(o.out.Etcd, EtcdMember{Name: one.Name, Learner: one.Learner})
			}
			return
		}
	}
	o.unknown("etcd's members", err)
}

func (o *overviewing) releases(ctx context.Context, b *bootstrapper) {
	workload, err := b.connect(kubeconfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return // none was installed
	}
	var all []kube.ReleaseState
	if err == nil {
		all, err = workload.Releases(ctx)
	}
	if err != nil {
		o.unknown("the Helm releases", err)
		return
	}
	o.out.Releases = all
}

func (o *overviewing) targets(ctx context.Context, b *bootstrapper) {
	targets, err := hetzner.Targets(ctx, b.tools.Hetzner, b.cfg.ClusterName)
	if err != nil {
		o.unknown("the load balancer's targets", err)
		return
	}
	o.out.Targets = targets
}

func (o *overviewing) cost(ctx context.Context, b *bootstrapper) {
	inventory, err := hetzner.TakeInventory(ctx, b.tools.Hetzner)
	if err != nil {
		o.unknown("what it costs", err)
		return
	}
	o.out.Cost = hetzner.Total(inventory.Of(b.cfg.ClusterName))
}

// certificates are those of the files that open the cluster.
func (o *overviewing) certificates(b *bootstrapper) {
	add := func(of, file string, ends func([]byte) (time.Time, error)) {
		data, err := b.tools.Files.Read(file)
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
	add("kubeconfig", kubeconfigFile, kubeconfigEnds(false))
	add("talosconfig", talosconfigFile, func(data []byte) (time.Time, error) {
		credentials, err := talos.Parse(data)
		if err != nil {
			return time.Time{}, err
		}
		return credentials.Expires()
	})
	add("the cluster's authority", kubeconfigFile, kubeconfigEnds(true))
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
