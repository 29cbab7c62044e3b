package etcdview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// AskControlPlane asks every control plane server whether it has data of etcd, all at once. The management cluster may
// be on them, so it finds them at Hetzner.
func AskControlPlane(ctx context.Context, cfg config.Config, tools platform.Tools) (talos.Client, []Node, error) {
	config, err := tools.Files.Read(platform.Talosconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, wait.Final(fmt.Errorf("the state folder has no talosconfig, with which the servers are asked: put "+
			"the cluster's there, as %s", tools.Files.Path(platform.Talosconfig)))
	}
	if err == nil {
		_, err = talos.Parse(config)
	}
	if talos.Refused(err) {
		return nil, nil, wait.Final(fmt.Errorf("%s is not used: %w. Move it away: %s writes it anew from the cluster",
			tools.Files.Path(platform.Talosconfig), err, tools.Command("all")))
	}
	if err != nil {
		return nil, nil, err
	}
	servers, err := ControlPlaneServers(ctx, cfg, tools)
	if err != nil {
		return nil, nil, err
	}
	return AskServers(ctx, tools, config, servers)
}

// ControlPlaneServers are the cluster's control plane servers at Hetzner.
func ControlPlaneServers(ctx context.Context, cfg config.Config, tools platform.Tools) ([]hetzner.Server, error) {
	servers, err := hetzner.Servers(ctx, tools.Hetzner, cfg.ClusterName)
	return slices.DeleteFunc(servers, func(s hetzner.Server) bool { return !s.ControlPlane }), err
}

// AskServers asks some servers, with a talosconfig, all at once.
func AskServers(ctx context.Context, tools platform.Tools, config []byte, servers []hetzner.Server) (talos.Client,
	[]Node, error) {
	credentials, err := talos.Parse(config)
	if err != nil {
		return nil, nil, err
	}
	balancers, _ := credentials.Targets()
	t, err := tools.Talos(config)
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]Node, len(servers))
	var asking sync.WaitGroup
	for i, s := range servers {
		n := Node{Server: s.Name, Err: fmt.Errorf("it has no address (it is %s at Hetzner)", s.Status)}
		asking.Go(func() { nodes[i] = n.ask(ctx, t, RoutesTo(s, balancers)) })
	}
	asking.Wait()
	return t, nodes, nil
}

// MembersOf asks a node for the list of etcd's members, which only a member with a leader answers.
func MembersOf(ctx context.Context, t talos.Client, n Node) ([]talos.EtcdMember, error) {
	ctx, cancel := context.WithTimeout(ctx, AskWithin)
	defer cancel()
	return t.LocalEtcdMembers(ctx, n.Route)
}
