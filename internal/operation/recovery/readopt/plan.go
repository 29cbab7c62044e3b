// Package readopt is the plan that gives a cluster whose servers exist its Cluster API objects back.
package readopt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/capi"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/ensure/capiinit"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Plan is the graph of a readoption: a cluster whose servers exist gets the Cluster API objects back that
// managed it.
type Plan struct {
	Graph *flow.Graph
	// All names the steps that a readoption wants; they depend on the others.
	All []string

	// What a person is told of.
	Management  *flow.Step[steps.Management]
	Cluster     *flow.Step[steps.Cluster]
	Kubeconfig  *flow.Step[steps.Kubeconfig]  // nil: the cluster manages itself
	Talosconfig *flow.Step[steps.Talosconfig] // the same
	Nodes       *flow.Step[steps.Nodes]       // the same
	Access      *flow.Step[steps.Access]      // nil: it does not

	in inputs
	b  *steps.Set

	comparison *flow.Step[Comparison]
}

// inputs is what the steps of a readoption are made from, besides the steps of the bootstrap.
type inputs struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	source   backup.Cluster
	accept   []string // IDs of differences
}

// mismatchKinds are the prefixes of the IDs of differences.
var mismatchKinds = []string{
	"load-balancer-missing", "load-balancer-replaced", "load-balancer-unlabelled", "machine-deleting", "member-missing",
	"member-unknown", "network-missing",
	"node-missing", "node-unknown", "object-left", "placement-group-missing", "placement-group-unknown", "replicas",
	"rollout", "server-missing", "server-replaced",
	"server-unknown", "server-unlabelled", "version",
}

// New plans the readoption of a cluster out of a backup of it. accept are the IDs of differences that a person
// accepts.
func New(cfg config.Config, tools platform.Tools, source backup.Cluster, accept []string) (*Plan, error) {
	cfg, err := source.Configure(cfg)
	if err != nil {
		return nil, err
	}
	for _, id := range accept {
		kind, name, _ := strings.Cut(id, "/")
		if name == "" || !slices.Contains(mismatchKinds, kind) {
			return nil, fmt.Errorf("--accept: %q is the ID of no difference: they are written as the list of differences has "+
				"them, %s/…, and so on", id, strings.Join(mismatchKinds[:3], "/…, "))
		}
	}
	b, err := steps.NewSet(cfg, tools)
	if err != nil {
		return nil, err
	}
	accept = slices.Compact(slices.Sorted(slices.Values(accept)))
	in := inputs{cfg: cfg, tools: tools.WithDefaults(), source: source, accept: accept}
	if in.sources, err = render.Read(render.VariablesOf(cfg), in.tools.Overrides); err != nil {
		return nil, err
	}
	in.observer = &situation.Observer{Cfg: cfg, Tools: in.tools, Sources: in.sources, Began: time.Now()}
	p := &Plan{Graph: flow.New("slipway-readopt"), in: in, b: b}
	if err := p.manage(); err != nil {
		return nil, err
	}
	handOver := recovery.AddHandOver(p.Graph, cfg, in.tools, "readopting", p.access(p.release())...)
	p.All = []string{handOver.Name()}
	return p, p.Graph.Validate()
}

// spec is what steps are made from that follow the backup.
func (r inputs) spec() any { return map[string]any{"backup": r.source.Identity(), "accept": r.accept} }

// manage are the steps until there is a cluster that the objects go to.
func (p *Plan) manage() error {
	g, r, cfg := p.Graph, p.in, p.in.cfg
	installed, err := capiinit.Spec(cfg, r.tools, r.sources)
	if err != nil {
		return err
	}
	installing, err := capiinit.Waits(cfg, r.sources)
	if err != nil {
		return err
	}
	orphan := flow.Add(g, flow.Task[Orphan]{
		Name:     "orphaned",
		Doc:      "the cluster exists and is the backup's, and no cluster manages it",
		Run:      flow.Do(r.ensureOrphaned),
		Spec:     r.spec(),
		Deadline: wait.Overhead,
	})
	p.comparison = flow.Add(g, flow.Task[Comparison]{
		Name:     "compare",
		Doc:      "the backup agrees with the servers, the nodes and etcd's members, but for what was accepted",
		Run:      flow.With1(r.compareAll, orphan),
		Spec:     r.spec(),
		Deadline: wait.Overhead,
	})
	claim := recovery.AddClaim(g, cfg, r.tools, "no other state folder readopts or restores this cluster", r.spec(),
		flow.Do(r.claimReadopt)).After(p.comparison)
	sweep := flow.Add(g, flow.Task[recovery.Sweep]{
		Name:     "sweep",
		Doc:      "nodes of servers that are gone, where that was accepted, are removed, and their Pods start elsewhere",
		Run:      flow.With1(r.removeGone, p.comparison),
		After:    flow.Of(claim),
		Deadline: wait.Overhead,
	})
	name, doc := "kind-create", "a management cluster for Cluster API: kind, an existing one, or the lab's"
	if r.itself() {
		name, doc = "management", "the cluster itself, which managed itself"
	}
	p.Management = flow.Add(g, flow.Task[steps.Management]{
		Name:     name,
		Doc:      doc,
		Run:      flow.Do(r.manageAgain),
		After:    flow.Of(p.comparison, sweep),
		Spec:     connect.ManagementSpec(cfg, r.tools),
		Verify:   r.verifyManager,
		Deadline: cfg.ManagementTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Management},
	})
	providers := flow.Add(g, flow.Task[steps.Providers]{
		Name:     "capi-init",
		Doc:      "Cluster API and its providers for Hetzner and Talos are installed and serve",
		Run:      flow.With1(r.installAgain, p.Management),
		Spec:     installed,
		Deadline: 3*cfg.ProvidersTimeout.D() + wait.Overhead,
		Waits:    append(installing, capiinit.LeaseWait(cfg)),
	})
	p.Cluster = flow.Add(g, flow.Task[steps.Cluster]{
		Name: "put-back",
		Doc: "the objects and Secrets of the backup exist, paused; the control plane provider knows that etcd is " +
			"bootstrapped",
		Run:      flow.With2(r.putBack, p.Management, p.comparison),
		After:    flow.Of(providers),
		Spec:     r.spec(),
		Deadline: cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(cfg)},
	})
	return nil
}

// release are the steps that have the objects reconciled again; it gives the last of them.
func (p *Plan) release() flow.Node {
	g, r, cfg := p.Graph, p.in, p.in.cfg
	secret := flow.Add(g, flow.Task[steps.TokenSecret]{
		Name:     "secret",
		Doc:      "today's Hetzner token for Cluster API, in the place of the backup's",
		Run:      flow.With1(r.renewToken, p.Management),
		After:    flow.Of(p.Cluster),
		Deadline: wait.Overhead,
	})
	released := flow.Add(g, flow.Task[steps.Pivot]{
		Name:     "unpause",
		Doc:      "everything was compared once more, and the controllers reconcile again",
		Run:      flow.With2(r.unpause, p.Management, p.comparison),
		After:    flow.Of(p.Cluster, secret),
		Spec:     r.spec(),
		Deadline: cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(cfg)},
	})
	within := cfg.NodesTimeout.D() + cfg.ControlPlaneTimeout.D()
	return flow.Add(g, flow.Task[steps.Pivot]{
		Name:     "reconcile",
		Doc:      "the controllers have reconciled every object; no server was created or deleted except as announced",
		Run:      flow.With2(r.reconcile, p.Management, p.comparison),
		After:    flow.Of(released),
		Deadline: within + wait.Overhead,
		Waits:    []flow.Wait{{For: "the controllers (NODES_TIMEOUT and CONTROL_PLANE_TIMEOUT)", Within: within}},
	})
}

// access are the steps that open the cluster once it is reconciled; after the last of them everything is done.
func (p *Plan) access(reconciled flow.Node) (last []flow.Node) {
	if p.in.itself() {
		p.Access = p.b.Access(p.Graph).After(reconciled)
		return []flow.Node{p.Access}
	}
	p.Kubeconfig = p.b.Kubeconfig(p.Graph, p.Management, p.Cluster).After(reconciled)
	p.Talosconfig = p.b.Talosconfig(p.Graph, p.Management, p.Cluster).After(reconciled)
	p.Nodes = p.b.Nodes(p.Graph, p.Management, p.Cluster, p.Kubeconfig)
	machines := p.b.Machines(p.Graph, p.Management, p.Cluster).After(p.Nodes)
	return []flow.Node{p.Talosconfig, p.Nodes, machines}
}

// Inspect looks at everything, and changes nothing.
func (p *Plan) Inspect(ctx context.Context, say flow.Say) (Readoption, error) {
	r := p.in
	out := Readoption{Cluster: r.cfg.ClusterName, Taken: r.source.Contents.Header.Taken, Manager: "the cluster itself",
		Differences: []Mismatch{}}
	if !r.itself() {
		out.Manager = fmt.Sprintf("management cluster %s (%s)", r.cfg.ManagementName(), r.tools.Management.Name())
	}
	say("looking for the cluster and for who manages it")
	orphan, workload, _, err := r.lookForManager(ctx, say)
	if err != nil {
		return out, err
	}
	record, err := records.ReadReadopt(r.tools.Files)
	if err != nil {
		return out, err
	}
	out.Underway = record != nil && record.Ended.IsZero() && slices.Equal(record.Accepted, r.accept)
	if out.Released = orphan.Released; out.Released {
		return out, nil
	}
	say("comparing the backup with the servers, the nodes and etcd's members")
	if out.Differences, err = r.compareWith(ctx, workload, orphan); err != nil {
		return out, err
	}
	if out.Comparison, out.Open, err = r.decide(ctx, out.Differences); err != nil {
		return out, err
	}
	objects, err := r.returning(out.Comparison)
	out.PutBack = len(objects)
	if capi.Truth(r.source.Object(capi.ClusterKind.Kind, r.cfg.ClusterName), "spec", "paused") {
		out.Notes = append(out.Notes, "the cluster was paused when the backup was taken; it is unpaused at the end")
	}
	return out, err
}
