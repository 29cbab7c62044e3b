package fromservers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
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
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/platform"
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
	primaryIP   *hetzner.Endpoint     // nil: no Primary IP of the cluster keeps the API's address
	foreign     error                 // why a Primary IP of that name is not the cluster's
	balancer    *hetzner.LoadBalancer // nil: there is none
	network     struct{ whole, servers string }
	groups      []string // placement groups
	// architectures are those of the servers' types, as images call them.
	architectures map[string]string
}

// look asks Hetzner, the nodes and every server. It changes nothing.
func look(ctx context.Context, cfg config.Config, tools platform.Tools, workload *kube.Cluster) (s *survey, err error) {
	s = &survey{nodes: map[string]*corev1.Node{}, architectures: map[string]string{}}
	s.sources = func(cfg config.Config) (render.Sources, error) {
		return render.Read(render.VariablesOf(cfg), tools.Overrides)
	}
	s.talosconfig, err = open(tools, platform.Talosconfig, func(t platform.Tools, file string) ([]byte, error) {
		return t.Files.Read(file)
	})
	if err != nil {
		return nil, err
	}
	if s.talos, err = tools.Talos(s.talosconfig); err != nil {
		return nil, err
	}
	if err := s.lookAtNodes(ctx, cfg, workload); err != nil {
		return nil, err
	}
	if err := s.lookAtServers(ctx, cfg, tools); err != nil {
		return nil, err
	}
	if err := s.lookAtAddress(ctx, cfg, tools); err != nil {
		return nil, err
	}
	if err := s.askServers(ctx, cfg); err != nil {
		return nil, err
	}
	if s.balancer == nil { // it may have lost its label
		if err := s.lookAtBalancer(ctx, cfg, tools, s.host()); err != nil {
			return nil, err
		}
	}
	if s.network.whole, s.network.servers, err = hetzner.NetworkRanges(ctx, tools.Hetzner,
		cfg.ClusterName); err != nil {
		return nil, err
	}
	s.groups, err = hetzner.PlacementGroups(ctx, tools.Hetzner, cfg.ClusterName)
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
			capi.NodeClusterAnnotation:   {cfg.ClusterName, "CLUSTER_NAME"},
			capi.NodeNamespaceAnnotation: {cfg.Namespace, "NAMESPACE"},
		} {
			if is := n.Annotations[annotation]; is != "" && is != want.is {
				return usage.Errorf("node %s says that it is of %s=%s, not of %s: a cluster keeps it; set %s=%s",
					n.Name, want.variable, is, want.is, want.variable, is)
			}
		}
	}
	return nil
}

func (s *survey) lookAtServers(ctx context.Context, cfg config.Config, tools platform.Tools) error {
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
		return one.node != nil && slices.Contains([]string{"", one.ProviderID()}, one.node.Spec.ProviderID)
	}) {
		return usage.Errorf("no control plane server of cluster %s (%s) is a node of the cluster that %s leads to: "+
			"that is another cluster's", name, hetzner.ServerNames(servers), tools.Files.Path(platform.Kubeconfig))
	}
	for _, all := range [][]server{s.servers, s.workers} {
		slices.SortFunc(all, func(a, b server) int { return cmp.Compare(a.ID, b.ID) })
	}
	for _, one := range servers {
		if s.architectures[one.Type] == "" {
			kind, err := hetzner.FindServerType(ctx, c, one.Type)
			if err != nil {
				return err
			}
			s.architectures[one.Type] = kind.Architecture
		}
	}
	return nil
}

// lookAtAddress finds the Primary IP that keeps the API's address, and the load balancer that has it.
func (s *survey) lookAtAddress(ctx context.Context, cfg config.Config, tools platform.Tools) (err error) {
	s.primaryIP, err = hetzner.FindEndpoint(ctx, tools.Hetzner, cfg.ClusterName)
	if foreign, is := errors.AsType[*hetzner.ForeignError](err); is {
		s.foreign = foreign
	} else if err != nil {
		return err
	}
	address := ""
	if s.primaryIP != nil {
		address = s.primaryIP.IPv4.String()
	}
	return s.lookAtBalancer(ctx, cfg, tools, address)
}

// lookAtBalancer finds the load balancer by the cluster's label, or by its address, which may be empty.
func (s *survey) lookAtBalancer(ctx context.Context, cfg config.Config, tools platform.Tools, address string) error {
	found, err := hetzner.SurvivingBalancer(ctx, tools.Hetzner, cfg.ClusterName, address)
	if err != nil || found == nil {
		return err
	}
	lb, err := hetzner.LoadBalancerByID(ctx, tools.Hetzner, found.ID)
	s.balancer = &lb
	return err
}

// address is the IPv4 address of the API's load balancer; empty: it is not known.
func (s *survey) address() string {
	switch {
	case s.balancer != nil && len(s.balancer.Addresses) > 0:
		return s.balancer.Addresses[0].String()
	case s.primaryIP != nil:
		return s.primaryIP.IPv4.String()
	}
	if _, err := netip.ParseAddr(s.host()); err == nil {
		return s.host()
	}
	return ""
}

// askServers reads the machine configuration of every server. One of the control plane at least has to answer.
func (s *survey) askServers(ctx context.Context, cfg config.Config) error {
	var balancers []string
	if address := s.address(); address != "" {
		balancers = append(balancers, address)
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
		s.bundle = secrets.NewBundleFromConfig(secrets.NewClock(), one.config)
	}
	if s.bundle == nil {
		return fmt.Errorf("no control plane server gives its machine configuration, which has the cluster's keys: %w",
			errors.Join(failed...))
	}
	return s.refuseServers(cfg)
}

// refuseServers refuses servers of which no objects can be made.
func (s *survey) refuseServers(cfg config.Config) error {
	for _, one := range slices.Concat(s.servers, s.workers) {
		if one.config == nil {
			continue
		}
		if is := one.config.Cluster().Name(); one.ControlPlane && is != cfg.ClusterName {
			return usage.Errorf("the machine configuration of server %s is of cluster %s, not of %s", one.Name, is,
				cfg.ClusterName)
		}
		if is := one.config.Machine().Type().IsControlPlane(); is != one.ControlPlane {
			return usage.Errorf("server %s has the label machine_type of another role at Hetzner than its machine "+
				"configuration (%s): give it machine_type=%s, and run again", one.Name, one.config.Machine().Type(),
				map[bool]string{true: "control_plane", false: "worker"}[is])
		}
	}
	if s.bundle.Secrets.SecretboxEncryptionSecret == "" {
		return usage.Errorf("the API servers of cluster %s encrypt with the key of Talos before 1.3 (aescbc), which "+
			"the bootstrap provider gives no new server: such a cluster is not supported", cfg.ClusterName)
	}
	return nil
}

// askOver asks a server over one route after another until it answers.
func (one *server) askOver(ctx context.Context, t talos.Client, routes []talos.Route) {
	failed := []error{}
	for _, route := range routes {
		err := one.ask(ctx, t, route)
		if err == nil {
			return
		}
		failed = append(failed, err)
	}
	if one.err = errors.Join(failed...); one.err == nil {
		one.err = errors.New("it has no address")
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

// host is the host by which the cluster's own programs address its API; empty: there is none, or no server has
// answered.
func (s *survey) host() string {
	one := s.newest()
	if one.config == nil || one.config.Cluster().Endpoint() == nil {
		return ""
	}
	return one.config.Cluster().Endpoint().Hostname()
}
