package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/kube"
	"github.com/slipway-k8s/slipway/internal/talos"
)

const (
	// askTalosWithin bounds a question to one node; a node that is up answers in milliseconds.
	askTalosWithin = 3 * time.Second
	// controlPlaneEvery is short because neither Talos nor the load balancer announces when it begins to answer.
	controlPlaneEvery = time.Second
	// serverRunning is Hetzner's word for a server that is on.
	serverRunning = "running"
)

// ControlPlane is the workload cluster's own API.
type ControlPlane struct {
	Endpoint string `json:"endpoint"`
	UID      string `json:"uid"` // of its namespace kube-system
}

// waitControlPlane waits until the Kubernetes API answers through the load balancer. It does not wait for replicas to be
// ready: those are Nodes, and none is Ready before Cilium, which needs the API.
func (b *bootstrapper) waitControlPlane(ctx context.Context, say flow.Say, m Management, c Cluster) (ControlPlane, error) {
	mgmt, err := b.connect(m.Kubeconfig)
	if err != nil {
		return ControlPlane{}, err
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	changes := mgmt.Changes(watching,
		kube.Selection{List: listOf(hetznerClusterKind), Options: []client.ListOption{client.InNamespace(Namespace)}},
		kube.Selection{List: listOf(talosControlPlaneKind), Options: []client.ListOption{client.InNamespace(Namespace)}},
		kube.Selection{List: listOf(machineKind), Options: ofCluster(c.Name)},
		kube.Selection{List: listOf(hcloudMachineKind), Options: ofCluster(c.Name)},
	)
	out := ControlPlane{Endpoint: c.Endpoint}
	w := wait{what: "the control plane", within: b.cfg.ControlPlaneTimeout.D(), every: controlPlaneEvery, changes: changes}
	err = w.until(ctx, say, func(ctx context.Context) (string, error) {
		p, err := b.observe(ctx, mgmt, c)
		if err != nil {
			return "", err
		}
		out.UID = p.uid
		missing := p.missing()
		if missing != "" && p.failed != nil {
			return "", final(fmt.Errorf("waiting for the control plane: %w; last seen: %s", p.failed, missing))
		}
		return missing, nil
	})
	return out, err
}

// progress is how far a control plane has come.
type progress struct {
	want        int // servers
	servers     []serverProgress
	troubles    []string // of the cluster as a whole
	failed      error    // what no waiting will mend, and what will
	initialized bool     // CACPPT's word: the API has answered to it
	api         string   // why the API does not answer through the load balancer; empty: it does
	uid         string
}

type serverProgress struct {
	name    string
	machine string // its Machine
	made    bool   // there is a server at Hetzner
	state   string // Hetzner's word for it
	trouble string
	failed  string // why CAPH has given it up
	talos   error  // why Talos does not answer
	node    talos.Node
}

// missing says what is not there yet, the worst first; empty when the control plane answers.
func (p progress) missing() string {
	if p.initialized && p.api == "" {
		return ""
	}
	var made, running, answering, etcd int
	var worst, why reasons
	for _, s := range p.servers {
		if s.made {
			made++
		}
		if s.state == serverRunning {
			running++
		}
		if s.state == serverRunning && s.talos == nil {
			answering++
		}
		if s.node.Healthy {
			etcd++
		}
		switch {
		case s.trouble != "" && !s.made:
			worst.add(s.name, s.trouble)
		case s.trouble != "" && s.state != serverRunning:
			why.add(s.name, s.trouble)
		case s.state == serverRunning && s.talos != nil:
			why.add(s.name, s.talos.Error())
		}
	}
	line := fmt.Sprintf("of %d servers %d made, %d running, Talos answers on %d, etcd on %d", p.want, made, running, answering, etcd)
	switch {
	case p.api != "":
		line += "; API: " + p.api
	default:
		line += "; the API answers, the control plane provider has not seen it yet"
	}
	return strings.Join(slices.Concat(p.troubles, worst.lines(), []string{line}, why.lines()), "; ")
}

func (b *bootstrapper) observe(ctx context.Context, mgmt *kube.Cluster, c Cluster) (progress, error) {
	tcp, err := get(ctx, mgmt, talosControlPlaneKind, c.ControlPlane)
	if err != nil {
		return progress{}, err
	}
	p := progress{want: int(number(tcp, "spec", "replicas")), initialized: truth(tcp, "status", "initialized")}
	machines, err := list(ctx, mgmt, machineKind, c.Name)
	if err != nil {
		return progress{}, err
	}
	servers, err := list(ctx, mgmt, hcloudMachineKind, c.Name)
	if err != nil {
		return progress{}, err
	}
	byName := map[string]*unstructured.Unstructured{}
	for i := range servers {
		byName[servers[i].GetName()] = &servers[i]
	}
	for _, m := range controlPlaneMachines(machines) {
		p.servers = append(p.servers, describeServer(&m, byName[text(&m, "spec", "infrastructureRef", "name")]))
	}
	infrastructure, err := get(ctx, mgmt, hetznerClusterKind, c.Name)
	if err != nil {
		return progress{}, err
	}
	p.blame(infrastructure, tcp)
	if text(infrastructure, "status", "controlPlaneLoadBalancer", "ipv4") != c.LoadBalancerIP {
		if lost := b.checkEndpoint(ctx, c.LoadBalancerIP); isLost(lost) {
			p.failed = lost
		}
	}
	var asking sync.WaitGroup
	asking.Go(func() { p.api, p.uid = b.askAPI(ctx, mgmt, c) })
	b.askTalos(ctx, mgmt, c, controlPlaneMachines(machines), p.servers)
	asking.Wait()
	return p, nil
}

// blame collects what keeps the cluster as a whole from coming further: without it nobody learns why nothing happens.
func (p *progress) blame(infrastructure, tcp *unstructured.Unstructured) {
	add := func(who, why string) {
		if why != "" {
			p.troubles = append(p.troubles, who+": "+why)
		}
	}
	add("HetznerCluster", troublesBut(infrastructure, func(c map[string]any) bool {
		kind, _ := c["type"].(string)
		return strings.HasPrefix(kind, "TargetCluster") // that the API does not answer is asked of the API
	}))
	add("TalosControlPlane", troublesBut(tcp, func(c map[string]any) bool {
		// While all Machines are there, its conditions say in other words what the servers are asked for here.
		return c["severity"] != "Error" && len(p.servers) >= p.want || c["severity"] == "Info"
	}))
	if why := failure(tcp); why != "" {
		p.failed = fmt.Errorf("the Talos provider has given TalosControlPlane %s up (%s) and does not try again: "+
			"mend the cause and, as there is no cluster yet, begin anew with the target destroy", tcp.GetName(), why)
	}
	for _, s := range p.servers {
		if s.failed != "" {
			p.failed = fmt.Errorf("server %s is given up (%s) and Cluster API does not make it again by itself: "+
				"kubectl --namespace %s delete machine %s in the management cluster makes another one; then run again", s.name, s.failed, Namespace, s.machine)
		}
	}
}

// describeServer joins what Cluster API and CAPH say about a server.
func describeServer(machine, server *unstructured.Unstructured) serverProgress {
	s := serverProgress{name: machine.GetName(), machine: machine.GetName(), talos: errors.New("not asked yet")}
	if server == nil {
		s.trouble = troubles(machine)
		return s
	}
	s.name = server.GetName()
	s.made = text(server, "spec", "providerID") != ""
	s.state = text(server, "status", "instanceState")
	s.trouble = troubles(server)
	if why := failure(server); why != "" {
		s.trouble = why
		if machine.GetDeletionTimestamp() == nil { // else it makes room for another already
			s.failed = why
		}
	}
	return s
}

// askTalos asks every running server's Talos, all at once.
func (b *bootstrapper) askTalos(ctx context.Context, mgmt *kube.Cluster, c Cluster, machines []unstructured.Unstructured, servers []serverProgress) {
	config, err := secretValue(ctx, mgmt, c.Name+"-talosconfig", "talosconfig")
	if kube.Absent(err) {
		err = errors.New("there is no talosconfig yet")
	}
	if err != nil {
		for i := range servers {
			servers[i].talos = err
		}
		return
	}
	t, err := b.tools.Talos(config)
	var asking sync.WaitGroup
	for i := range machines {
		address := append(addresses(&machines[i], addressExternal), addresses(&machines[i], addressInternal)...)
		switch {
		case err != nil:
			servers[i].talos = err
		case len(address) == 0:
			servers[i].talos = errors.New("its address is not known yet")
		case servers[i].state == serverRunning:
			asking.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, askTalosWithin)
				defer cancel()
				servers[i].node, servers[i].talos = t.Ask(ctx, address[0])
			})
		}
	}
	asking.Wait()
}

// askAPI says why the API does not answer through the load balancer; nothing and the cluster's identity when it does.
func (b *bootstrapper) askAPI(ctx context.Context, mgmt *kube.Cluster, c Cluster) (trouble, uid string) {
	config, err := secretValue(ctx, mgmt, c.Name+"-kubeconfig", "value")
	if kube.Absent(err) {
		return "there is no kubeconfig yet", ""
	}
	if err != nil {
		return err.Error(), ""
	}
	ctx, cancel := context.WithTimeout(ctx, askTalosWithin)
	defer cancel()
	workload, err := b.tools.Connect(config)
	if err != nil {
		return err.Error(), ""
	}
	if err := workload.Ready(ctx); err != nil {
		return err.Error(), ""
	}
	if uid, err = workload.UID(ctx); err != nil {
		return err.Error(), ""
	}
	return "", uid
}

// secretValue reads one key of one of the cluster's Secrets in the management cluster.
func secretValue(ctx context.Context, mgmt *kube.Cluster, name, key string) ([]byte, error) {
	s := &corev1.Secret{}
	if err := mgmt.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, s); err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, err)
	}
	if len(s.Data[key]) == 0 {
		return nil, fmt.Errorf("Secret %s has no key %s yet", name, key)
	}
	return s.Data[key], nil
}

// controlPlaneStands asks the workload cluster itself. Silence is no answer: servers restart, lines break.
func (b *bootstrapper) controlPlaneStands(ctx context.Context, was ControlPlane) flow.Verdict {
	mgmt, err := b.connect(managementFile)
	if err != nil {
		return flow.Unknown(err)
	}
	config, err := secretValue(ctx, mgmt, b.cfg.ClusterName+"-kubeconfig", "value")
	if err != nil {
		return unless(err)
	}
	workload, err := b.tools.Connect(config)
	if err != nil {
		return flow.Unknown(err)
	}
	uid, err := workload.UID(ctx)
	switch {
	case err != nil:
		return flow.Unknown(fmt.Errorf("the cluster's API at %s does not answer: %w", was.Endpoint, err))
	case uid != was.UID:
		return flow.Gone("another cluster answers at %s", was.Endpoint)
	}
	return flow.Holds()
}
