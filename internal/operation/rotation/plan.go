// Package rotation replaces the certificate authorities of a cluster's Talos API and Kubernetes API while the cluster
// works, so that no talosconfig and no kubeconfig of before opens it any more.
package rotation

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Plan is the graph of a rotation. Every server is changed three times, one server after another: first it accepts the
// new authorities beside the old ones, then it issues with the new ones and accepts the old, and last it accepts the
// new ones alone. Between the last two everything that has credentials gets new ones. Each step leaves alone what is
// already as it is to be, so that a rotation that was cut off is resumed by the same steps.
type Plan struct {
	Graph *flow.Graph
	All   []string // the steps that a rotation wants

	in inputs
}

// inputs is what the steps are made from.
type inputs struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	api      apiServers
}

// New plans a rotation. It makes no request.
func New(cfg config.Config, tools platform.Tools) (*Plan, error) {
	tools = tools.WithDefaults()
	sources := render.ReadOrEmpty(cfg, tools.Overrides)
	return newPlan(inputs{cfg: cfg, tools: tools, sources: sources, api: endpoint{},
		observer: &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources}})
}

func newPlan(in inputs) (*Plan, error) {
	g := flow.New("slipway-rotate-ca")
	p := &Plan{Graph: g, in: in}
	made := flow.Add(g, flow.Task[Made]{
		Name:     "new-authorities",
		Doc:      "a Secret in the cluster that manages the cluster has the new authorities",
		Run:      flow.Do(in.makeAuthorities),
		Deadline: in.cfg.NodesTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(in.cfg)},
	})
	accepted := in.addPass(g, "accept", "every server accepts the new authorities beside the old ones", in.accept, made)
	files := flow.Add(g, flow.Task[Made]{
		Name:     "access",
		Doc:      "kubeconfig and talosconfig in the state folder have certificates of the new authorities, and trust both",
		Run:      flow.Do(in.writeAccess),
		After:    flow.Of(accepted),
		Deadline: wait.Overhead,
	})
	issued := in.addPass(g, "issue", "every server issues with the new authorities, and accepts the old ones", in.issue,
		files)
	secrets := flow.Add(g, flow.Task[Made]{
		Name:     "secrets",
		Doc:      "Cluster API makes servers and credentials with the new authorities",
		Run:      flow.Do(in.replaceSecrets),
		After:    flow.Of(issued),
		Deadline: wait.Overhead,
	})
	restarted := flow.Add(g, flow.Task[Workloads]{
		Name:  "restart",
		Doc:   "every workload that uses the Kubernetes API has been restarted, and trusts the new authority",
		Run:   flow.With1(in.restart, made),
		After: flow.Of(secrets),
		// one namespace after another, and what holds them all up is the slowest Pod
		Deadline: restartWithin + in.cfg.NodesTimeout.D() + wait.Overhead,
		Waits: []flow.Wait{{For: "the workloads that are restarted", Within: restartWithin},
			wait.Nodes(in.cfg)},
	})
	dropped := in.addPass(g, "drop", "no server accepts the old authorities", in.drop, restarted)
	finished := flow.Add(g, flow.Task[Made]{
		Name:     "refused",
		Doc:      "certificates of the old authorities are refused, and the state folder trusts the new ones alone",
		Run:      flow.Do(in.finish),
		After:    flow.Of(dropped),
		Deadline: in.cfg.NodesTimeout.D() + in.cfg.ControlPlaneTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(in.cfg), wait.ControlPlane(in.cfg)},
	})
	p.All = []string{finished.Name()}
	return p, g.Validate()
}

// addPass adds a step that changes every server.
func (in inputs) addPass(g *flow.Graph, name, doc string,
	run func(context.Context, flow.Say) (Servers, error), after flow.Node) *flow.Step[Servers] {
	within := in.cfg.ControlPlaneTimeout.D()
	return flow.Add(g, flow.Task[Servers]{
		Name: name, Doc: doc, Run: flow.Do(run), After: flow.Of(after),
		Deadline: time.Duration(1+in.servers())*within + 2*in.cfg.NodesTimeout.D() + wait.Overhead,
		Waits: []flow.Wait{{For: "one server after its change (CONTROL_PLANE_TIMEOUT)", Within: within},
			wait.Nodes(in.cfg)},
	})
}

// servers is how many servers the configuration has at most.
func (in inputs) servers() int {
	n := in.cfg.ControlPlaneReplicas
	for _, p := range in.cfg.Workers {
		n += max(p.Replicas, p.Max)
	}
	return n
}

// clusters are the cluster, and the cluster that has its Cluster API objects.
type clusters struct{ manager, workload *kube.Cluster }

func (in inputs) open(ctx context.Context, say flow.Say) (c clusters, err error) {
	if c.manager, _, err = situation.ManagingCluster(ctx, in.cfg, in.tools, in.sources, say); err != nil {
		return c, err
	}
	c.workload, err = connect.Cluster(in.tools, platform.Kubeconfig)
	return c, err
}

// opened is what each step but the first begins with.
func (in inputs) opened(ctx context.Context, say flow.Say) (clusters, authorities, error) {
	c, err := in.open(ctx, say)
	if err != nil {
		return clusters{}, authorities{}, err
	}
	a, err := in.readAuthorities(ctx, c.manager)
	return c, a, err
}
