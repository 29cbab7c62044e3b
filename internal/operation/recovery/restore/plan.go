// Package restore is the plan that restores a cluster from a backup after all of its servers are lost.
package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Plan is the graph of a restore after all servers are lost: the bootstrap, with the recovery of etcd in the
// place of the bootstrap of a new one. What the backup contains comes back; nothing of it is made a second time.
type Plan struct {
	Graph *flow.Graph
	// All names the steps that a restore wants; they depend on the others.
	All []string

	b  *steps.Set
	in inputs

	// What a person is told of.
	Cluster    *flow.Step[steps.Cluster]
	Kubeconfig *flow.Step[steps.Kubeconfig]
	Talos      *flow.Step[steps.Talosconfig]
	Nodes      *flow.Step[steps.Nodes]

	claim      *flow.Step[steps.Reservation]
	image      *flow.Step[steps.Image]
	management *flow.Step[steps.Management]
	target     *flow.Step[recovery.Target]
	members    *flow.Step[recovery.Membership]
	sweep      *flow.Step[recovery.Sweep]
	firewall   *flow.Step[steps.Firewall] // nil: the cluster had none
}

// New plans the restore of a backup. cfg is a valid configuration; what the backup knows better of its cluster
// (the server type, the image, the versions, the number of servers) is taken from there.
func New(cfg config.Config, tools platform.Tools, source backup.Cluster) (*Plan, error) {
	cfg, err := source.Configure(cfg)
	if err != nil {
		return nil, err
	}
	b, err := steps.NewSet(cfg, tools)
	if err != nil {
		return nil, err
	}
	in, err := newInputs(cfg, tools, source)
	if err != nil {
		return nil, err
	}
	p := &Plan{Graph: flow.New("slipway-restore"), b: b, in: in}
	p.objects()
	p.etcd()
	p.access()
	return p, p.Graph.Validate()
}

// add adds a step that is made from the backup.
func add[T any](p *Plan, t flow.Task[T]) *flow.Step[T] {
	t.Spec = p.in.source.Identity()
	return flow.Add(p.Graph, t)
}

// addForServers adds a step that waits for the servers or their etcd.
func addForServers[T any](p *Plan, t flow.Task[T]) *flow.Step[T] {
	t.Spec = p.in.source.Identity()
	return recovery.AddForServers(p.Graph, p.in.cfg, t)
}

// objects are the steps until the cluster's objects are there again.
func (p *Plan) objects() {
	g, r := p.Graph, p.in
	lost := add(p, flow.Task[Lost]{
		Name: "lost",
		Doc: "the cluster is lost: it has no server, its API does not answer, no cluster manages it; and what is " +
			"left of it",
		Run:      flow.Do(r.ensureLost),
		Verify:   r.verifyLost,
		Deadline: wait.Overhead,
	})
	p.claim = recovery.AddClaim(g, r.cfg, r.tools, "no other state folder restores this cluster", r.source.Identity(),
		flow.With1(r.claimRestore, lost))
	preflight := p.b.Preflight(g).After(p.claim)
	p.image = p.b.Image(g, preflight)
	endpoint := p.b.Endpoint(g, preflight)
	p.management = p.b.Management(g).After(preflight)
	providers := p.b.Providers(g, p.management)
	secret := p.b.TokenSecret(g, p.management)
	seed := add(p, flow.Task[Seed]{
		Name: "seed",
		Doc: "the management cluster has the lost cluster's authorities, keys and tokens before a controller " +
			"creates new ones",
		Run:      flow.With1(r.seedSecrets, p.management),
		Verify:   r.verifySecrets,
		Deadline: wait.Overhead,
		Waits:    []flow.Wait{wait.Taken, wait.Namespace},
	})
	detached := add(p, flow.Task[DetachedFirewall]{
		Name:     "firewall-lift",
		Doc:      "no surviving firewall keeps the temporary management cluster from the new servers",
		Run:      flow.Do(r.detachFirewall),
		Deadline: wait.Overhead,
	}).After(p.claim)
	p.Cluster = add(p, flow.Task[steps.Cluster]{
		Name: "apply",
		Doc: "the cluster's objects as they were; the control plane provider is paused, so that it does not bootstrap an " +
			"empty etcd",
		Run:      flow.With4(r.applyPaused, p.management, lost, p.image, endpoint),
		Verify:   r.verifyCluster,
		Deadline: 2*r.cfg.LoadBalancerTimeout.D() + wait.Overhead,
		Waits:    []flow.Wait{wait.Webhooks(r.cfg), wait.LoadBalancer(r.cfg)},
	}).After(providers, secret, seed, detached)
}

// etcd are the steps until the servers have the backup's etcd, without what it has of the lost ones.
func (p *Plan) etcd() {
	r := p.in
	p.target = addForServers(p, flow.Task[recovery.Target]{
		Name:   "servers",
		Doc:    "the servers are created, Talos answers on each, and none has an etcd; one is chosen to get the snapshot",
		Run:    flow.With2(r.chooseTarget, p.management, p.Cluster),
		Verify: r.verifyTarget,
	})
	upload := addForServers(p, flow.Task[recovery.Target]{
		Name: "etcd-recover",
		Doc:  "the chosen server has the etcd snapshot",
		Run:  flow.With3(r.uploadSnapshot, p.management, p.Cluster, p.target),
	})
	etcd := addForServers(p, flow.Task[recovery.Etcd]{
		Name:   "etcd-bootstrap",
		Doc:    "etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision",
		Run:    flow.With3(r.bootstrapRecovered, p.management, p.Cluster, upload),
		Verify: r.verifyEtcd,
	})
	p.Kubeconfig = p.b.Kubeconfig(p.Graph, p.management, p.Cluster)
	quiet := add(p, flow.Task[recovery.Quiet]{
		Name: "quiet",
		Doc: "Cluster API of the time of the snapshot, which the snapshot contains, is stopped before it creates " +
			"servers",
		Run:      flow.With2(r.quietStale, p.Kubeconfig, etcd),
		Deadline: recovery.QuietWithin + wait.Overhead,
		Waits:    []flow.Wait{{For: "the old controllers to be stopped", Within: recovery.QuietWithin}},
	})
	p.sweep = add(p, flow.Task[recovery.Sweep]{
		Name: "sweep",
		Doc: "objects and nodes of the lost servers are removed; the cloud controller manager has today's token " +
			"and network",
		Run:      flow.With3(r.sweepStale, p.Kubeconfig, p.management, p.Cluster),
		Deadline: sweepWithin + wait.Overhead,
		Waits:    []flow.Wait{{For: "the restored cluster to take changes", Within: sweepWithin}},
	}).After(quiet)
	p.members = addForServers(p, flow.Task[recovery.Membership]{
		Name: "etcd-members",
		Doc:  "every control plane server is a voting member of that one etcd",
		Run:  flow.With3(r.awaitMembers, p.management, p.Cluster, etcd),
	})
}

// access are the steps until the cluster is used and managed as before, and behind its firewall.
func (p *Plan) access() {
	g, r := p.Graph, p.in
	release := addForServers(p, flow.Task[steps.Cluster]{
		Name:   "release",
		Doc:    "the control plane provider reconciles again, and has seen that etcd is bootstrapped",
		Run:    flow.With2(r.releaseControlPlane, p.management, p.Cluster),
		Verify: r.verifyRelease,
	}).After(p.members, p.sweep)
	p.Talos = p.b.Talosconfig(g, p.management, release)
	p.Nodes = p.b.Nodes(g, p.management, release, p.Kubeconfig)
	machines := p.b.Machines(g, p.management, release).After(p.Nodes)
	if !r.source.Contents.Header.SelfManaged {
		handOver := recovery.AddHandOver(g, r.cfg, r.tools, "restoring", machines)
		p.All = []string{p.Talos.Name(), machines.Name(), handOver.Name(), p.addFirewallReturn(machines)}
		return
	}
	pivot := p.b.Pivot(g).After(p.Nodes, machines, p.Talos).Replace(flow.Task[steps.Pivot]{ResumeWhen: r.movedByThis})
	access := p.b.Access(g).After(pivot)
	clean := p.b.Clean(g).After(pivot).OrderAfter(access)
	handOver := recovery.AddHandOver(g, r.cfg, r.tools, "restoring", access)
	p.All = []string{access.Name(), clean.Name(), handOver.Name()}
	if !hadFirewall(r.source) {
		p.All = append(p.All, p.addFirewallReturn(access))
		return
	}
	p.firewall = p.b.Firewall(g).After(pivot)
	p.All = append(p.All, p.b.FirewallApply(g, p.firewall).After(access).Name())
}

// addFirewallReturn adds the step firewall-return, and returns its name.
func (p *Plan) addFirewallReturn(last flow.Node) string {
	return flow.Add(p.Graph, flow.Task[DetachedFirewall]{
		Name:     "firewall-return",
		Doc:      "the servers are behind the firewall that the lost ones were behind",
		Run:      flow.Do(p.in.attachFirewall),
		Deadline: wait.Overhead,
	}).After(last).Name()
}

// inputs is what the steps of a restore are made from, besides the steps of the bootstrap.
type inputs struct {
	cfg      config.Config
	tools    platform.Tools
	sources  render.Sources
	observer *situation.Observer
	source   backup.Cluster
}

func newInputs(cfg config.Config, tools platform.Tools, source backup.Cluster) (inputs, error) {
	tools = tools.WithDefaults()
	sources, err := render.Read(render.VariablesOf(cfg), tools.Overrides)
	if err != nil {
		return inputs{}, err
	}
	observer := &situation.Observer{Cfg: cfg, Tools: tools, Sources: sources, Began: time.Now()}
	return inputs{cfg: cfg, tools: tools, sources: sources, observer: observer, source: source}, nil
}

// movedByThis tells whether this restore's own pivot has begun: until the restore has set it aside, the record in the
// folder is the lost cluster's.
func (r inputs) movedByThis() (bool, error) {
	record, err := records.ReadRestore(r.tools.Files)
	if err != nil || record == nil || record.ClusterIdentity != r.source.Identity() {
		return false, err
	}
	return records.PivotCopyOf(r.tools).Underway(r.cfg.ClusterName)
}

// Explain says what a change of what a step is made from is.
func (p *Plan) Explain(c flow.Change) []changes.Difference {
	return changes.Explain(p.in.tools, p.in.sources, c)
}

// Losses says what a restore cannot bring back, and what becomes of the cluster's address. It changes nothing. Where
// the cluster is not lost its error wraps ErrAlive, and where another state folder recovers it, it is a
// *RecoveringError, as the restore's would be.
func (p *Plan) Losses(ctx context.Context, now time.Time) ([]string, error) {
	r := p.in
	mine, err := r.underway()
	if err != nil {
		return nil, err
	}
	if err := r.refuse(ctx, func(string, ...any) {}, mine); err != nil {
		return nil, err
	}
	taken := r.source.Contents.Header.Taken
	since := now.Sub(taken).Round(time.Second)
	if since > time.Hour {
		since = since.Round(time.Minute)
	}
	losses := []string{
		fmt.Sprintf("the cluster comes back as it was at %s: what was written in the %s since is lost",
			taken.Local().Format(time.DateTime), config.Duration(since)),
		"what lay on the lost servers' own disks is lost; volumes at Hetzner are kept",
	}
	_, notes, err := r.survivors(ctx)
	return append(losses, notes...), err
}

// Bill tells what a restore that would do this makes at Hetzner, and what that costs a month: what the backup's objects
// ask for and has not survived.
func (p *Plan) Bill(ctx context.Context, foreseen []flow.Prediction, _ []changes.Consequence) (orders.Bill,
	error) {
	would := map[string]bool{}
	for _, f := range foreseen {
		would[f.Name] = f.Action == flow.ActionRun || f.Action == flow.ActionMayRun
	}
	if !would[p.Cluster.Name()] && !would[p.target.Name()] && !would[p.image.Name()] {
		return orders.Bill{}, nil
	}
	more := orders.Extra{Image: would[p.image.Name()], Firewall: p.firewall != nil && would[p.firewall.Name()]}
	return orders.Missing(ctx, p.in.cfg, p.in.tools, orders.Of(p.in.source.Wanted(), p.in.cfg.PreferredLocation()), more)
}

// Consequences are none: what a restore does to a cluster is that it is there again.
func (p *Plan) Consequences(context.Context, []flow.Prediction) ([]changes.Consequence, error) {
	return nil, nil
}
