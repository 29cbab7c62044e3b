// Package rotation replaces the certificate authorities of a cluster's Talos API and Kubernetes API while the cluster
// works, so that no talosconfig and no kubeconfig of before opens it any more.
package rotation

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/kube"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// Plan is the graph of a rotation. Every server is changed several times, one server after another: first it accepts
// the new authorities beside the old ones, then it issues with the new ones and accepts the old, and last it accepts
// the new ones alone. Before that everything that has credentials gets new ones. Each step leaves alone what is already
// as it is to be, so that a rotation that was cut off is resumed by the same steps. Cluster API is paused meanwhile:
// the servers that it would make know one authority alone.
type Plan struct {
	Graph *flow.Graph
	// Begin names the step after which there is something to resume, All the steps that a rotation wants.
	Begin, All []string
	// Restarted is the step that restarts workloads.
	Restarted *flow.Step[Workloads]

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
	nodes, plane := in.cfg.NodesTimeout.D(), in.cfg.ControlPlaneTimeout.D()
	waitSecrets := flow.Wait{For: "the Secrets of Cluster API to be changed", Within: secretsWithin}
	made := flow.Add(g, flow.Task[Made]{
		Name:     "new-authorities",
		Doc:      "the cluster is whole, and a Secret beside the Cluster API objects has the new authorities",
		Run:      flow.Do(in.makeAuthorities),
		Deadline: nodes + wait.Overhead,
		Waits:    []flow.Wait{wait.Nodes(in.cfg)},
	})
	accepted := in.addPass(g, "accept",
		"Cluster API is paused, and every server accepts the new authorities beside the old ones", in.accept, made,
		made)
	files := flow.Add(g, flow.Task[Made]{
		Name:     "access",
		Doc:      "kubeconfig and talosconfig in the state folder have new certificates, and trust old and new ones",
		Run:      flow.With1(in.writeAccess, made),
		After:    flow.Of(accepted),
		Deadline: wait.Overhead,
	})
	issued := in.addPass(g, "issue", "every server issues with the new authorities, and accepts the old ones", in.issue,
		made, files)
	secrets := flow.Add(g, flow.Task[Made]{
		Name:     "secrets",
		Doc:      "Cluster API makes servers and credentials with the new authorities",
		Run:      flow.With1(in.replaceSecrets, made),
		After:    flow.Of(issued),
		Deadline: secretsWithin + wait.Overhead,
		Waits:    []flow.Wait{waitSecrets},
	})
	restarted := flow.Add(g, flow.Task[Workloads]{
		Name:     "restart",
		Doc:      "every workload that uses the Kubernetes API has been restarted, and trusts the new authority",
		Run:      flow.With1(in.restart, made),
		After:    flow.Of(secrets),
		Deadline: restartWithin + nodes + wait.Overhead,
		Waits: []flow.Wait{{For: "the workloads that are restarted", Within: restartWithin},
			wait.Nodes(in.cfg)},
	})
	kubernetes := in.addPass(g, "drop-kubernetes", "no server accepts the old authority of the Kubernetes API",
		in.dropKubernetes, made, restarted)
	both := in.addPass(g, "drop-talos", "no server accepts the old authority of the Talos API", in.dropTalos, made,
		kubernetes)
	finished := flow.Add(g, flow.Task[Made]{
		Name:     "refused",
		Doc:      "certificates of the old authorities are refused; the state folder trusts the new; Cluster API works",
		Run:      flow.With1(in.finish, made),
		After:    flow.Of(both),
		Deadline: secretsWithin + plane + wait.Overhead,
		Waits:    []flow.Wait{waitSecrets, wait.ControlPlane(in.cfg)},
	})
	return &Plan{Graph: g, Begin: []string{made.Name()}, All: []string{finished.Name()}, Restarted: restarted, in: in},
		g.Validate()
}

// addPass adds a step that changes every server: it waits for each before its change, for its Talos, and after it.
func (in inputs) addPass(g *flow.Graph, name, doc string,
	run func(context.Context, flow.Say, Made) (Servers, error), made *flow.Step[Made],
	after flow.Node) *flow.Step[Servers] {
	within := 3 * in.cfg.ControlPlaneTimeout.D()
	return flow.Add(g, flow.Task[Servers]{
		Name: name, Doc: doc, Run: flow.With1(run, made), After: flow.Of(after),
		Deadline: time.Duration(1+in.servers())*within + wait.Overhead,
		Waits:    []flow.Wait{{For: "one server (CONTROL_PLANE_TIMEOUT, three times)", Within: within}},
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
	c.manager, _, err = situation.ManagingPaused(ctx, in.cfg, in.tools, in.sources, say, pausedAnnotation)
	if err != nil {
		return c, err
	}
	c.workload, err = connect.Cluster(in.tools, platform.Kubeconfig)
	return c, err
}

// opened is what each step but the first begins with.
func (in inputs) opened(ctx context.Context, say flow.Say, made Made) (clusters, authorities, error) {
	c, err := in.open(ctx, say)
	if err != nil {
		return clusters{}, authorities{}, err
	}
	a, err := in.begunWith(ctx, c.manager, made)
	return c, a, err
}

// begunWith reads the authorities with which the rotation began. Another state folder may have ended it since, and
// begun another one.
func (in inputs) begunWith(ctx context.Context, manager *kube.Cluster, made Made) (authorities, error) {
	a, err := in.readAuthorities(ctx, manager)
	is := a.made()
	if kube.Absent(err) || err == nil && (is.Talos != made.Talos || is.Kubernetes != made.Kubernetes) {
		folder := records.RotationFiles(in.tools.Files)
		return authorities{}, fmt.Errorf("the authorities with which the rotation began are not in Secret "+
			"%s/%s any more: another state folder has ended it, or the cluster was restored. Copy kubeconfig and "+
			"talosconfig from there, remove %s, and look (%s)", in.cfg.Namespace, in.secretName(), folder,
			in.tools.Command("status"))
	}
	return a, err
}
