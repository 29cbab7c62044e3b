package fromservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	machinery "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
)

// Annotations that Cluster API puts on a node.
const (
	clusterAnnotation   = "cluster.x-k8s.io/cluster-name"
	namespaceAnnotation = "cluster.x-k8s.io/cluster-namespace"
	machineAnnotation   = "cluster.x-k8s.io/machine"
	ownerAnnotation     = "cluster.x-k8s.io/owner-name" // of the Machine: of a worker's its MachineSet
)

// server is a server of the cluster.
type server struct {
	hetzner.Server
	node   *corev1.Node // nil: it is none
	route  talos.Route
	talos  string             // version
	config machinery.Provider // nil: it does not answer
	err    error              // why it does not
}

// survey is what exists of a cluster.
type survey struct {
	sources     func(config.Config) (render.Sources, error)
	talos       talos.Client
	talosconfig []byte
	servers     []server // of the control plane, the newest last
	workers     []server // the newest last
	nodes       map[string]*corev1.Node
	bundle      *secrets.Bundle
	endpoint    *hetzner.Endpoint // nil: the API's address is the load balancer's
	balancer    *hetzner.Survivor
	inventory   []hetzner.Resource
	groups      []string // placement groups
	// architecture is that of the newest server, as images call it.
	architecture string
}

// look asks Hetzner, the nodes and every control plane server. It changes nothing.
func look(ctx context.Context, cfg config.Config, tools platform.Tools, workload *kube.Cluster) (*survey, error) {
	s := &survey{nodes: map[string]*corev1.Node{}, sources: func(cfg config.Config) (render.Sources, error) {
		return render.Read(render.VariablesOf(cfg), tools.Overrides)
	}}
	if err := s.lookAtNodes(ctx, cfg, workload); err != nil {
		return nil, err
	}
	if err := s.lookAtHetzner(ctx, cfg, tools); err != nil {
		return nil, err
	}
	var err error
	s.talosconfig, err = open(tools, platform.Talosconfig, func(t platform.Tools, file string) ([]byte, error) {
		return t.Files.Read(file)
	})
	if err != nil {
		return nil, err
	}
	if s.talos, err = tools.Talos(s.talosconfig); err != nil {
		return nil, err
	}
	if err := s.askServers(ctx, cfg); err != nil {
		return nil, err
	}
	kind, err := hetzner.FindServerType(ctx, tools.Hetzner, s.newest().Type)
	s.architecture = kind.Architecture
	return s, err
}

func (s *survey) lookAtNodes(ctx context.Context, cfg config.Config, workload *kube.Cluster) error {
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		s.nodes[n.Name] = n
		for annotation, want := range map[string]struct{ is, variable string }{
			clusterAnnotation:   {cfg.ClusterName, "CLUSTER_NAME"},
			namespaceAnnotation: {cfg.Namespace, "NAMESPACE"},
		} {
			if is := n.Annotations[annotation]; is != "" && is != want.is {
				return usage.Errorf("node %s says that it is of %s=%s, not of %s: a cluster keeps it; set %s=%s", n.Name,
					want.variable, is, want.is, want.variable, is)
			}
		}
	}
	return nil
}

func (s *survey) lookAtHetzner(ctx context.Context, cfg config.Config, tools platform.Tools) error {
	c, name := tools.Hetzner, cfg.ClusterName
	servers, err := hetzner.Servers(ctx, c, name)
	if err != nil {
		return err
	}
	for _, one := range servers {
		found := server{Server: one, node: s.nodes[one.Name]}
		if one.ControlPlane {
			s.servers = append(s.servers, found)
		} else {
			s.workers = append(s.workers, found)
		}
	}
	if len(s.servers) == 0 {
		return fmt.Errorf("no control plane server of cluster %s exists at Hetzner (label caph-cluster-%s): there is "+
			"nothing to make a backup from", name, name)
	}
	if !slices.ContainsFunc(s.servers, func(one server) bool {
		return one.node != nil && one.node.Spec.ProviderID == one.ProviderID()
	}) {
		return usage.Errorf("no control plane server of cluster %s (%s) is a node of the cluster that %s leads to: that is "+
			"another cluster's", name, hetzner.ServerNames(servers), tools.Files.Path(platform.Kubeconfig))
	}
	for _, all := range [][]server{s.servers, s.workers} {
		slices.SortFunc(all, func(a, b server) int { return cmp.Compare(a.ID, b.ID) })
	}
	s.endpoint, err = hetzner.FindEndpoint(ctx, c, name)
	if _, foreign := errors.AsType[*hetzner.ForeignError](err); err != nil && !foreign {
		return err
	}
	if s.balancer, err = hetzner.SurvivingBalancer(ctx, c, name, ""); err != nil {
		return err
	}
	inventory, err := hetzner.ListResources(ctx, c, hetzner.KindLoadBalancer, hetzner.KindNetwork)
	if err != nil {
		return err
	}
	s.inventory = inventory.Of(name)
	s.groups, err = hetzner.PlacementGroups(ctx, c, name)
	return err
}

// askServers reads the machine configuration of every server. One of the control plane at least has to answer.
func (s *survey) askServers(ctx context.Context, cfg config.Config) error {
	var balancers []string
	if s.balancer != nil {
		balancers = append(balancers, s.balancer.IPv4)
	}
	var asking sync.WaitGroup
	for _, all := range [][]server{s.servers, s.workers} {
		for i := range all {
			asking.Go(func() { all[i].askOver(ctx, s.talos, etcdview.RoutesTo(all[i].Server, balancers)) })
		}
	}
	asking.Wait()
	var failed []error
	for _, one := range s.servers {
		if one.config == nil {
			failed = append(failed, fmt.Errorf("%s: %w", one.Name, one.err))
			continue
		}
		if is := one.config.Cluster().Name(); is != cfg.ClusterName {
			return usage.Errorf("the machine configuration of server %s is of cluster %s, not of %s", one.Name, is,
				cfg.ClusterName)
		}
		s.bundle = secrets.NewBundleFromConfig(secrets.NewClock(), one.config)
	}
	if s.bundle == nil {
		return fmt.Errorf("no control plane server gives its machine configuration, which has the cluster's keys: %w",
			errors.Join(failed...))
	}
	return nil
}

// askOver asks a server over one route after another until it answers. The error is that of the first.
func (one *server) askOver(ctx context.Context, t talos.Client, routes []talos.Route) {
	one.err = errors.New("it has no address")
	for i, route := range routes {
		if err := one.ask(ctx, t, route); err == nil {
			return
		} else if i == 0 {
			one.err = err
		}
	}
}

// ask asks a server over one route.
func (one *server) ask(ctx context.Context, t talos.Client, route talos.Route) error {
	ctx, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
	defer cancel()
	is, err := t.Ask(ctx, route)
	if err != nil {
		return err
	}
	live, err := t.MachineConfig(ctx, route)
	if err != nil {
		return err
	}
	one.route, one.talos, one.config = route, is.Version, live
	return nil
}

// newest is the newest server of the control plane that has answered.
func (s *survey) newest() server { return newestOf(s.servers) }

func newestOf(servers []server) (found server) {
	for _, one := range servers {
		if one.config != nil {
			found = one
		}
	}
	return found
}
