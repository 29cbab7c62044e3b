package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Management is the cluster that Cluster API works in.
type Management struct {
	Provider   string `json:"provider"`
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"` // file in the state folder
	UID        string `json:"uid"`        // of its namespace kube-system
}

// Management adds the step kind-create to a graph: the management cluster exists and its API answers.
func (s *Set) Management(g *flow.Graph) *flow.Step[Management] {
	return flow.Add(g, flow.Task[Management]{
		Name:     "kind-create",
		Doc:      "a management cluster for Cluster API: kind, processes of this machine, an existing one, or the lab's",
		Run:      flow.Do(s.runManagement),
		Spec:     connect.ManagementSpec(s.cfg, s.tools),
		Verify:   s.verifyManagement,
		Deadline: s.cfg.ManagementTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Management},
	})
}

// runManagement adopts or makes the management cluster, and keeps its kubeconfig.
func (s *Set) runManagement(ctx context.Context, say flow.Say) (Management, error) {
	if m, err := s.adoptSelfManaged(ctx, say); err != nil || m != nil {
		return *cmp.Or(m, &Management{}), err
	}
	m, err := connect.EnsureManagement(ctx, s.cfg, s.tools, say)
	return Management{Provider: m.Provider, Name: m.Name, Kubeconfig: platform.ManagementKubeconfig, UID: m.UID}, err
}

// adoptSelfManaged looks before a management cluster is created: servers of a cluster without a management cluster are
// not to be managed by an empty one, which would create them a second time. Where the cluster manages itself and the
// state folder still opens it, it is the management cluster from here on. nil: there is nothing to adopt.
func (s *Set) adoptSelfManaged(ctx context.Context, say flow.Say) (*Management, error) {
	p, name := s.tools.Management, s.cfg.ManagementName()
	if exists, err := p.Exists(ctx, name); err != nil || exists {
		return nil, nil // Ensure knows better what to say of it
	}
	servers, err := hetzner.Servers(ctx, s.tools.Hetzner, s.cfg.ClusterName)
	if err != nil || len(servers) == 0 {
		return nil, err
	}
	refuse := func(why string) error {
		return fmt.Errorf("%d servers of a cluster %s exist at Hetzner (%s), but %s has no management cluster %s, and %s: "+
			"nothing is made, because a new "+
			"management cluster would make a second cluster into the network and load balancer of this one. Where the cluster "+
			"manages itself, name its "+
			"kubeconfig in MANAGEMENT_KUBECONFIG; where it is lost, destroy it; or choose another CLUSTER_NAME",
			len(servers), s.cfg.ClusterName, hetzner.ServerNames(servers), p.Name(), name, why)
	}
	kubeconfig, err := s.tools.Files.Read(platform.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, refuse("the state folder has no kubeconfig of the cluster")
	}
	if err != nil {
		return nil, err
	}
	cluster, err := connect.Cluster(s.tools, platform.Kubeconfig)
	if err != nil {
		return nil, err
	}
	uid, err := cluster.UID(ctx)
	if err != nil {
		return nil, refuse("the cluster does not answer: " + err.Error())
	}
	switch o, err := connect.FindCluster(ctx, s.cfg, cluster); {
	case err != nil:
		return nil, err
	case o == nil:
		return nil, refuse("the cluster does not manage itself")
	}
	say("cluster %s manages itself: it is its own management cluster", s.cfg.ClusterName)
	if err := s.tools.Files.Write(platform.ManagementKubeconfig, kubeconfig); err != nil {
		return nil, err
	}
	m := &Management{Provider: p.Name(), Name: name, Kubeconfig: platform.ManagementKubeconfig, UID: uid}
	return m, connect.RecordManagement(s.tools, ownership.Management{Provider: m.Provider, Name: name, UID: uid})
}

func (s *Set) verifyManagement(ctx context.Context, m Management) flow.Verdict {
	return connect.VerifyManagement(ctx, s.tools, ownership.Management{Provider: m.Provider, Name: m.Name, UID: m.UID})
}
