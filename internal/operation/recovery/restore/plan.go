// Package restore is the plan that restores a cluster from a backup after all of its servers are lost.
package restore

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/cluster/situation"
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

	Lost          *flow.Step[Lost]
	Claim         *flow.Step[steps.Reservation]
	Preflight     *flow.Step[steps.Placement]
	Endpoint      *flow.Step[steps.Endpoint]
	Image         *flow.Step[steps.Image]
	Management    *flow.Step[steps.Management]
	Providers     *flow.Step[steps.Providers]
	Secret        *flow.Step[steps.TokenSecret]
	Seed          *flow.Step[Seed]
	Detached      *flow.Step[DetachedFirewall]
	Cluster       *flow.Step[steps.Cluster]
	Target        *flow.Step[recovery.Target]
	Upload        *flow.Step[recovery.Target]
	Etcd          *flow.Step[recovery.Etcd]
	Kubeconfig    *flow.Step[steps.Kubeconfig]
	Quiet         *flow.Step[recovery.Quiet]
	Sweep         *flow.Step[recovery.Sweep]
	Members       *flow.Step[recovery.Membership]
	Release       *flow.Step[steps.Cluster]
	Talos         *flow.Step[steps.Talosconfig]
	Nodes         *flow.Step[steps.Nodes]
	Machines      *flow.Step[steps.Machines]
	HandOver      *flow.Step[steps.Reservation]
	Pivot         *flow.Step[steps.Pivot] // nil: the cluster did not manage itself
	Access        *flow.Step[steps.Access]
	Firewall      *flow.Step[steps.Firewall] // nil: it had none
	FirewallApply *flow.Step[steps.FirewallAttachment]
	Clean         *flow.Step[steps.Clean]

	b  *steps.Set
	in inputs
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
	lost, etcd, stale, firewall := lostStep{in}, etcdStep{in}, staleStep{in}, firewallStep{in}
	g := flow.New("slipway-restore")
	p := &Plan{Graph: g, b: b, in: in}

	p.Lost = lost.addLost(g)
	p.Claim = lost.addClaim(g, p.Lost)
	p.Preflight = b.Preflight(g).After(p.Claim)
	p.Image = b.Image(g, p.Preflight)
	p.Endpoint = b.Endpoint(g, p.Preflight)
	p.Management = b.Management(g).After(p.Preflight)
	p.Providers = b.Providers(g, p.Management)
	p.Secret = b.TokenSecret(g, p.Management)
	p.Seed = seedStep{in}.add(g, p.Management)
	p.Detached = firewall.addDetach(g).After(p.Claim)
	p.Cluster = applyStep{in}.add(g, p.Management, p.Lost, p.Image, p.Endpoint).After(p.Providers, p.Secret, p.Seed,
		p.Detached)

	p.Target = etcd.addServers(g, p.Management, p.Cluster)
	p.Upload = etcd.addUpload(g, p.Management, p.Cluster, p.Target)
	p.Etcd = etcd.addBootstrap(g, p.Management, p.Cluster, p.Upload)
	p.Kubeconfig = b.Kubeconfig(g, p.Management, p.Cluster)
	p.Quiet = stale.addQuiet(g, p.Kubeconfig, p.Etcd)
	p.Sweep = stale.addSweep(g, p.Kubeconfig, p.Management, p.Cluster).After(p.Quiet)
	p.Members = etcd.addMembers(g, p.Management, p.Cluster, p.Etcd)
	p.Release = releaseStep{in}.add(g, p.Management, p.Cluster).After(p.Members, p.Sweep)
	p.Talos = b.Talosconfig(g, p.Management, p.Release)
	p.Nodes = b.Nodes(g, p.Management, p.Release, p.Kubeconfig)
	p.Machines = b.Machines(g, p.Management, p.Release).After(p.Nodes)

	p.All = []string{p.Talos.Name(), p.Machines.Name()}
	last := flow.Node(p.Machines)
	if source.Contents.Header.SelfManaged {
		p.pivot(lost.movedByThis)
		last = p.Access
	}
	p.HandOver = recovery.AddHandOver(g, cfg, tools, "restoring", last)
	p.All = append(p.All, p.HandOver.Name())
	if source.Contents.Header.SelfManaged && hadFirewall(source) {
		p.addFirewall()
		return p, g.Validate()
	}
	p.All = append(p.All, firewall.addAttach(g).After(last).Name())
	return p, g.Validate()
}

// pivot makes a cluster that managed itself do so again.
func (p *Plan) pivot(underway func() (bool, error)) {
	p.Pivot = p.b.Pivot(p.Graph).After(p.Nodes, p.Machines, p.Talos).Replace(flow.Task[steps.Pivot]{ResumeWhen: underway})
	p.Access = p.b.Access(p.Graph).After(p.Pivot)
	p.Clean = p.b.Clean(p.Graph).After(p.Pivot).OrderAfter(p.Access)
	p.All = []string{p.Access.Name(), p.Clean.Name()}
}

// addFirewall puts the cluster behind its firewall again.
func (p *Plan) addFirewall() {
	p.Firewall = p.b.Firewall(p.Graph).After(p.Pivot)
	p.FirewallApply = p.b.FirewallApply(p.Graph, p.Firewall).After(p.Access)
	p.All = append(p.All, p.FirewallApply.Name())
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

// The steps of a restore that are its own.
type (
	lostStep     struct{ inputs } // lost and claim
	seedStep     struct{ inputs }
	firewallStep struct{ inputs } // firewall-lift and firewall-return
	applyStep    struct{ inputs }
	etcdStep     struct{ inputs } // servers, and those of etcd
	staleStep    struct{ inputs } // quiet and sweep
	releaseStep  struct{ inputs }
)

// movedByThis tells whether this restore's own pivot has begun: until the restore has set it aside, the record in the
// folder is the lost cluster's.
func (r lostStep) movedByThis() (bool, error) {
	record, err := records.ReadRestore(r.tools.Files)
	if err != nil || record == nil || record.ClusterIdentity != r.source.Identity() {
		return false, err
	}
	return records.PivotCopyOf(r.tools).Underway(r.cfg.ClusterName)
}
