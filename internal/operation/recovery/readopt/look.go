package readopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/client/talos"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/ensure/apply"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
)

// living is what exists of a cluster without management: at Hetzner, in etcd, in its own API, and where its objects
// are to go.
type living struct {
	servers  []hetzner.Server
	nodes    map[string]*corev1.Node
	members  []talos.EtcdMember
	balancer *hetzner.Survivor // nil: there is none
	endpoint *hetzner.Endpoint // nil: the backup's cluster has none, or it is gone
	network  int64             // 0: there is none
	// unlabelled are servers of the backup, by ID, that exist and are not among servers, for they have lost the cluster's
	// label.
	unlabelled map[int64]bool
	groups     []string // placement groups, by name
	left       []Leftover
}

// Leftover is an object of the cluster that is there without its Cluster object.
type Leftover struct {
	Kind string    `json:"kind"`
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// lookAround reads all of it, and changes nothing. What cannot be asked is an error.
func (r inputs) lookAround(ctx context.Context, workload *kube.Cluster, o Orphan) (l living, err error) {
	c, name := r.tools.Hetzner, r.cfg.ClusterName
	if l.servers, err = hetzner.Servers(ctx, c, name); err != nil {
		return living{}, err
	}
	if l.unlabelled, err = r.unlabelled(ctx, l.servers); err != nil {
		return living{}, err
	}
	was, _ := r.source.Endpoint()
	if l.balancer, err = hetzner.SurvivingBalancer(ctx, c, name, was); err != nil {
		return living{}, err
	}
	if r.source.KeepsAddress() {
		if l.endpoint, err = hetzner.FindEndpoint(ctx, c, name); err != nil {
			return living{}, err
		}
	}
	if l.network, err = hetzner.NetworkID(ctx, c, name); err != nil {
		return living{}, err
	}
	if l.groups, err = hetzner.PlacementGroups(ctx, c, name); err != nil {
		return living{}, err
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return living{}, fmt.Errorf("list the nodes: %w", err)
	}
	l.nodes = map[string]*corev1.Node{}
	for i := range nodes.Items {
		l.nodes[nodes.Items[i].Name] = &nodes.Items[i]
	}
	if l.members, err = r.etcdOf(ctx, l); err != nil {
		return living{}, err
	}
	if !o.Paused && !o.Released {
		l.left, err = r.leftAt(ctx, workload)
	}
	return l, err
}

// unlabelled asks for every server of the backup that is not listed by itself: the list is of those with the cluster's
// label.
func (r inputs) unlabelled(ctx context.Context, listed []hetzner.Server) (map[int64]bool, error) {
	found := map[int64]bool{}
	for _, m := range r.source.Machines() {
		if m.ServerID == 0 || slices.ContainsFunc(listed, func(s hetzner.Server) bool { return s.ID == m.ServerID }) {
			continue
		}
		gone, err := hetzner.ServerGone(ctx, r.tools.Hetzner, hetzner.Server{ID: m.ServerID}.ProviderID())
		if err != nil {
			return nil, err
		}
		if !gone {
			found[m.ServerID] = true
		}
	}
	return found, nil
}

// withoutLabel is about a Machine whose server exists, and is not found by the cluster's label. To leave it out would
// take its node, its Pods and its member of etcd away.
func (c *comparing) withoutLabel(m backup.ClusterMachine) {
	role := "worker"
	if m.ControlPlane {
		role = "control_plane"
	}
	c.add(Mismatch{
		ID: "server-unlabelled/" + m.Server,
		What: fmt.Sprintf("server %d of Machine %s lives, and has lost the label of cluster %s at Hetzner", m.ServerID,
			m.Name, c.source.Contents.Header.Cluster),
		Would: "whoever looks for the cluster's servers by that label, the firewall, status and destroy, would pass it by",
		Advice: fmt.Sprintf("label it again at Hetzner (caph-cluster-%s=owned, machine.caph-name=%s, machine_type=%s), or "+
			"delete it where it is to go, and run again",
			c.source.Contents.Header.Cluster, m.Server, role),
	})
}

// etcdOf asks the servers' own members of etcd for all of them, with the backup's credentials, one after the other
// until one answers. A member answers only while it has a leader, and so a quorum.
func (r inputs) etcdOf(ctx context.Context, l living) ([]talos.EtcdMember, error) {
	secret := r.source.Secret(r.cfg.ClusterName + "-talosconfig")
	if secret == nil {
		return nil, fmt.Errorf("ask etcd for its members: the backup has no Secret %s-talosconfig", r.cfg.ClusterName)
	}
	config, err := backup.SecretData(secret, "talosconfig")
	if err != nil {
		return nil, err
	}
	t, err := r.tools.Talos(config)
	if err != nil {
		return nil, err
	}
	balancer := ""
	if l.balancer != nil {
		balancer = l.balancer.IPv4
	}
	failed := []error{errors.New("no control plane server has an address")}
	for _, s := range l.servers {
		if !s.ControlPlane {
			continue
		}
		var public, private []string
		if s.Public.IsValid() {
			public = append(public, s.Public.String())
		}
		for _, a := range s.Private {
			private = append(private, a.String())
		}
		for _, route := range etcdview.Routes(public, private, balancer) {
			asking, cancel := context.WithTimeout(ctx, etcdview.AskWithin)
			members, err := t.LocalEtcdMembers(asking, route)
			cancel()
			if err == nil {
				return members, nil
			}
			failed = append(failed, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	if len(failed) > 1 {
		failed = failed[1:]
	}
	return nil, fmt.Errorf("ask etcd for its members, which is compared before anything is done: %w",
		errors.Join(failed...))
}

// leftAt lists the objects of the backup that are already where they are to go.
func (r inputs) leftAt(ctx context.Context, workload *kube.Cluster) (left []Leftover, err error) {
	target := workload
	if !r.itself() {
		if target, err = recovery.Management(ctx, r.cfg, r.tools); err != nil || target == nil {
			return nil, err
		}
	}
	for _, o := range r.source.All() {
		if o.GetKind() == "Secret" && o.GetName() == config.TokenSecretName {
			continue // of every cluster that is managed from there
		}
		is, err := apply.ReadCopied(ctx, target, o)
		if err != nil {
			return nil, err
		}
		if is != nil {
			left = append(left, Leftover{o.GetKind(), o.GetName(), is.GetUID()})
		}
	}
	return left, nil
}

// nodeMachine is the name that the Machine of a node had: Cluster API writes it on the node.
func nodeMachine(n *corev1.Node) string {
	if n == nil {
		return ""
	}
	return n.Annotations[capi.NodeMachineAnnotation]
}

// isMember tells whether etcd counts a server.
func (l living) isMember(name string) bool {
	return slices.ContainsFunc(l.members, func(m talos.EtcdMember) bool { return m.Name == name })
}

// roles describes what a server is besides a server.
func (l living) roles(name string) string {
	var roles []string
	if l.isMember(name) {
		roles = append(roles, "a member of etcd")
	}
	if l.nodes[name] != nil {
		roles = append(roles, "a node")
	}
	if len(roles) == 0 {
		return "neither a member of etcd nor a node"
	}
	return strings.Join(roles, " and ")
}

// matches tells whether a key is that of the leftover object.
func (l Leftover) matches(k capi.ObjectKey) bool { return l.Kind == k.Kind.Kind && l.Name == k.Name }
