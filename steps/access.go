package steps

import (
	"cmp"
	"context"
	"net"
	"strconv"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
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
	step := newAccessStep(s)
	return flow.Add(g, flow.Task[Access]{
		Name:     "access",
		Doc:      "kubeconfig, talosconfig and the list of nodes are today's, from the cluster itself",
		Run:      flow.Do(step.run),
		Verify:   step.verify,
		Deadline: 2*s.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.ControlPlane(s.cfg), wait.ControlPlane(s.cfg)},
	})
}

// accessStep runs and verifies the step access.
type accessStep struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
}

func newAccessStep(s *Set) accessStep {
	return accessStep{cfg: s.cfg, tools: s.tools, sources: s.sources, observer: s.observer}
}

// run asks the cluster itself.
func (a accessStep) run(ctx context.Context, say flow.Say) (Access, error) {
	self, err := connect.Cluster(a.tools, platform.Kubeconfig)
	if err != nil {
		return Access{}, err
	}
	live, err := capi.Get(ctx, self, a.cfg.Namespace, capi.HetznerClusterKind, a.cfg.ClusterName)
	if err != nil {
		return Access{}, err
	}
	endpoint := render.EndpointOf(live)
	ip := endpoint.IP
	if err := situation.CheckEndpoint(ctx, a.cfg, a.tools, a.sources, ip); err != nil {
		return Access{}, err // a kubeconfig that a person pointed at a server is worth more than the cluster's own
	}
	config, err := waitSecret(ctx, a.cfg, a.observer, say, self, a.cfg.ClusterName+"-kubeconfig", "value")
	if err != nil {
		return Access{}, err
	}
	port := strconv.FormatInt(capi.Number(live, "spec", "controlPlaneEndpoint", "port"), 10)
	known, err := situation.KnownEndpoints(a.cfg, a.sources, endpoint, port)
	if err != nil {
		return Access{}, err
	}
	o := connect.Offered{Data: config, Source: kubeconfigSource(a.cfg), Endpoints: known}
	if err := connect.Replace(ctx, a.tools, say, o); err != nil {
		return Access{}, err
	}
	out := Access{Endpoint: net.JoinHostPort(cmp.Or(endpoint.HostName, ip), port), Kubeconfig: platform.Kubeconfig}
	c := Cluster{Name: a.cfg.ClusterName, ControlPlane: a.cfg.ControlPlaneName(), LoadBalancerIP: ip}
	file, err := talosconfig.Renew(ctx, a.cfg, a.tools, a.observer, say, self, c.watched(a.cfg.Namespace))
	if err != nil {
		return Access{}, err
	}
	out.Talosconfig = Talosconfig(file)
	r, err := rollout.Read(ctx, a.cfg, a.tools, self, self)
	if err != nil {
		return Access{}, err
	}
	out.Nodes = nodesFrom(r.Nodes, hetzner.ByProviderID(r.Servers))
	soon, cancel := context.WithTimeout(ctx, changes.ComparedWithin)
	defer cancel()
	// they only tell a later run what was changed since
	if o, err := changes.Observe(soon, a.cfg, a.sources, self); err == nil {
		out.Values = o.Values
	}
	return out, nil
}

func (a accessStep) verify(ctx context.Context, was Access) flow.Verdict {
	self, err := connect.Cluster(a.tools, platform.Kubeconfig)
	if err != nil {
		return flow.Unknown(err)
	}
	host, _, err := net.SplitHostPort(was.Endpoint)
	if err != nil {
		return flow.Unknown(err)
	}
	if v := situation.VerifyEndpoint(ctx, a.cfg, a.tools, a.sources, host); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := kubeconfigHolds(ctx, a.cfg, a.tools, self); v.Answer() != flow.AnswerHolds {
		return v
	}
	if v := talosconfig.Verify(ctx, a.cfg, a.tools, self,
		talosconfig.File(was.Talosconfig)); v.Answer() != flow.AnswerHolds {
		return v
	}
	r, err := rollout.Read(ctx, a.cfg, a.tools, self, self)
	if err != nil {
		return flow.Unknown(err)
	}
	if !sameNodes(nodesFrom(r.Nodes, nil), was.Nodes) {
		return flow.Gone("the nodes are others than the recorded")
	}
	return flow.Holds()
}
