package steps

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/talosconfig"
	"github.com/slipway-k8s/slipway/platform"
)

// Access is what opens the cluster that manages itself, as it is today: the steps that made it first lie before the
// pivot and are not looked at any more, but certificates end, and servers come and go.
type Access struct {
	Endpoint    string      `json:"endpoint"`   // host:port of the Kubernetes API
	Kubeconfig  string      `json:"kubeconfig"` // file in the state folder
	Talosconfig Talosconfig `json:"talosconfig"`
	Nodes       []Node      `json:"nodes"`
	// Values are those that the cluster had, of the variables of the manifests.
	Values map[string]string `json:"values,omitempty"`
}

// Access adds the step access to a graph: the state folder has today's kubeconfig and talosconfig of a cluster that
// manages itself.
func (s *Set) Access(g *flow.Graph) *flow.Step[Access] {
	return flow.Add(g, flow.Task[Access]{
		Name:     "access",
		Doc:      "kubeconfig, talosconfig and the list of nodes are today's, from the cluster itself",
		Run:      doIn(s, s.runAccess),
		Verify:   verifyIn(s, platform.Kubeconfig, s.verifyAccess),
		Deadline: 2*s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg), wait.ControlPlane(s.cfg)},
	})
}

// runAccess asks the cluster itself.
func (s *Set) runAccess(ctx context.Context, say flow.Say, self *kube.Cluster) (Access, error) {
	live, err := capi.Get(ctx, self, s.cfg.Namespace, capi.HetznerClusterKind, s.cfg.ClusterName)
	if err != nil {
		return Access{}, err
	}
	endpoint := render.EndpointOf(live)
	ip := endpoint.IP
	if err := situation.CheckEndpoint(ctx, s.cfg, s.tools, s.sources, ip); err != nil {
		return Access{}, err // a kubeconfig that a person pointed at a server is worth more than the cluster's own
	}
	config, err := s.waitSecret(ctx, say, self, s.cfg.ClusterName+"-kubeconfig", "value")
	if err != nil {
		return Access{}, err
	}
	port := strconv.FormatInt(capi.Number(live, "spec", "controlPlaneEndpoint", "port"), 10)
	known, err := situation.KnownEndpoints(s.cfg, s.sources, endpoint, port)
	if err != nil {
		return Access{}, err
	}
	o := connect.Offered{Data: config, Source: kubeconfigSource(s.cfg), Endpoints: known}
	if err := connect.Replace(ctx, s.tools, say, o); err != nil {
		return Access{}, err
	}
	out := Access{Endpoint: net.JoinHostPort(cmp.Or(endpoint.HostName, ip), port), Kubeconfig: platform.Kubeconfig}
	file, err := talosconfig.Refresh(ctx, s.cfg, s.tools, s.observer, say, self)
	if err != nil {
		return Access{}, err
	}
	out.Talosconfig = Talosconfig(file)
	r, err := rollout.Read(ctx, s.cfg, s.tools, self, self)
	if err != nil {
		return Access{}, err
	}
	out.Nodes = nodesFrom(r.Nodes, hetzner.ByProviderID(r.Servers))
	soon, cancel := context.WithTimeout(ctx, changes.ComparedWithin)
	defer cancel()
	// they only tell a later run what was changed since
	if o, err := changes.Observe(soon, s.cfg, s.sources, self); err == nil {
		out.Values = o.Values
	}
	return out, nil
}

func (s *Set) verifyAccess(ctx context.Context, self *kube.Cluster, was Access) flow.Verdict {
	host, _, err := net.SplitHostPort(was.Endpoint)
	if err != nil {
		return flow.Unknown(err)
	}
	if v := situation.VerifyEndpoint(ctx, s.cfg, s.tools, s.sources, host); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := s.kubeconfigHolds(ctx, self); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := talosconfig.Verify(ctx, s.cfg, s.tools, self,
		talosconfig.File(was.Talosconfig)); v.Answer() != flow.AnswerHolds {
		return v
	}
	r, err := rollout.Read(ctx, s.cfg, s.tools, self, self)
	if err != nil {
		return flow.Unknown(err)
	}
	if !sameNodes(nodesFrom(r.Nodes, nil), was.Nodes) {
		return flow.Gone("the nodes are others than the recorded")
	}
	return flow.Holds()
}
