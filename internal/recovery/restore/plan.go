// Package restore is the plan that restores a cluster from a backup after all of its servers are lost.
package restore

import (
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/pivotcopy"
	"github.com/slipway-k8s/slipway/internal/recovery"
	"github.com/slipway-k8s/slipway/internal/recovery/records"
	"github.com/slipway-k8s/slipway/internal/recovery/source"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/situation"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Plan is the graph of a restore after all servers are lost: the bootstrap, with the recovery of etcd in the
// place of the bootstrap of a new one. What the file holds comes back; nothing of it is made a second time.
type Plan struct {
	Graph *flow.Graph
	// All names the steps that a restore wants; the others hang below them.
	All []string

	Lost          *flow.Step[Lost]
	Claim         *flow.Step[steps.Reservation]
	Preflight     *flow.Step[steps.Offer]
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
	HandOver      *flow.Step[steps.Reservation]
	Pivot         *flow.Step[steps.Pivot] // nil: the cluster did not manage itself
	Access        *flow.Step[steps.Access]
	Firewall      *flow.Step[steps.Firewall] // nil: it had none
	FirewallApply *flow.Step[steps.FirewallAttachment]
	Clean         *flow.Step[steps.Clean]

	b    *steps.Set
	in   inputs
	lost lostStep
}

// New plans the restore of a backup. cfg is a valid configuration; what the backup knows better of its cluster
// (the server type, the image, the versions, the number of servers) is taken from there.
func New(cfg config.Config, tools platform.Tools, source source.Backup) (*Plan, error) {
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
	lost, seed, firewall := lostStep{in}, seedStep{in}, detachStep{in}
	apply, etcd, stale, release := applyStep{in}, etcdStep{in}, staleStep{in}, releaseControlPlaneStep{in}
	g := flow.New("slipway-restore")
	p := &Plan{Graph: g, b: b, in: in, lost: lost}
	id := source.Identity()
	controlPlane := wait.ControlPlane(cfg)

	p.Lost = flow.Add(g, "lost", lost.ensureLost).
		Doc("the cluster is gone for certain: no server, no API, nobody who manages it; and what of it survived").
		Spec(id).Verify(lost.verifyLost).Deadline(wait.Overhead)

	p.Claim = flow.Add1(g, "claim", lost.claimRestore, p.Lost).
		Doc("nobody else restores this cluster").
		Spec(id).Verify(recovery.VerifyClaim(cfg, tools)).Deadline(wait.ReservedWithin +
		wait.Overhead).Waits(flow.Wait{For: "the claim",
		Within: wait.ReservedWithin})

	p.Preflight = b.Preflight(g).After(p.Claim)
	p.Image = b.Image(g, p.Preflight)
	p.Management = b.Management(g).After(p.Preflight)
	p.Providers = b.Providers(g, p.Management)
	p.Secret = b.TokenSecret(g, p.Management)

	p.Seed = flow.Add1(g, "seed", seed.seedSecrets, p.Management).
		Doc("the lost cluster's authorities, keys and tokens, in the management cluster before anything asks for new ones").
		Spec(id).Verify(seed.verifySecrets).Deadline(wait.Overhead).Waits(wait.Taken)

	p.Detached = flow.Add(g, "firewall-lift", firewall.detachFirewall).After(p.Claim).
		Doc("no surviving firewall keeps the temporary management cluster from the new servers").
		Spec(id).Deadline(wait.Overhead)

	p.Cluster = flow.Add3(g, "apply", apply.applyHeld, p.Management, p.Lost, p.Image).After(p.Providers, p.Secret, p.Seed,
		p.Detached).
		Doc("the cluster's objects as they were; the control plane provider is held off, so that it founds no empty etcd").
		Spec(id).Verify(apply.verifyCluster).Deadline(2*cfg.LoadBalancerTimeout.D()+wait.Overhead).
		Waits(wait.Webhooks(cfg), wait.LoadBalancer(cfg))

	p.Target = flow.Add2(g, "servers", etcd.chooseTarget, p.Management, p.Cluster).
		Doc("the servers are made, Talos answers on each, and none has an etcd; one is chosen to get the snapshot").
		Spec(id).Verify(etcd.verifyTarget).Deadline(cfg.ControlPlaneTimeout.D() + wait.Overhead).Waits(controlPlane)

	p.Upload = flow.Add3(g, "etcd-recover", etcd.uploadSnapshot, p.Management, p.Cluster, p.Target).
		Doc("the etcd snapshot lies on the chosen server").
		Spec(id).Deadline(cfg.ControlPlaneTimeout.D() + wait.Overhead).Waits(controlPlane)

	p.Etcd = flow.Add3(g, "etcd-bootstrap", etcd.bootstrapRecovered, p.Management, p.Cluster, p.Upload).
		Doc("etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision").
		Spec(id).Verify(etcd.verifyEtcd).Deadline(cfg.ControlPlaneTimeout.D() + wait.Overhead).Waits(controlPlane)

	p.Kubeconfig = b.Kubeconfig(g, p.Management, p.Cluster)

	p.Quiet = flow.Add2(g, "quiet", stale.quietStale, p.Kubeconfig, p.Etcd).
		Doc("Cluster API of the time of the snapshot, which woke up with it, is stopped before it makes servers").
		Spec(id).Deadline(recovery.QuietWithin + wait.Overhead).Waits(flow.Wait{For: "the old controllers to be stopped",
		Within: recovery.QuietWithin})

	p.Sweep = flow.Add3(g, "sweep", stale.sweepStale, p.Kubeconfig, p.Management, p.Cluster).After(p.Quiet).
		Doc("objects and nodes of the lost servers are gone; the cloud controller manager has today's token and network").
		Spec(id).Deadline(sweepWithin + wait.Overhead).Waits(flow.Wait{For: "the restored cluster to take changes",
		Within: sweepWithin})

	p.Members = flow.Add3(g, "etcd-members", etcd.awaitMembers, p.Management, p.Cluster, p.Etcd).
		Doc("every control plane server is a voting member of that one etcd").
		Spec(id).Deadline(cfg.ControlPlaneTimeout.D() + wait.Overhead).Waits(controlPlane)

	p.Release = flow.Add2(g, "release", release.releaseControlPlane, p.Management, p.Cluster).After(p.Members, p.Sweep).
		Doc("the control plane provider is let go, and has seen that etcd is there").
		Spec(id).Verify(release.verifyRelease).Deadline(cfg.ControlPlaneTimeout.D() + wait.Overhead).Waits(controlPlane)

	p.Talos = b.Talosconfig(g, p.Management, p.Release)
	p.Nodes = b.Nodes(g, p.Management, p.Release, p.Kubeconfig)

	p.All = []string{p.Talos.Name(), p.Nodes.Name()}
	last := flow.Node(p.Nodes)
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
	back := flow.Add(g, "firewall-return", firewall.attachFirewall).After(last).
		Doc("the servers are behind the firewall that the lost ones were behind").
		Deadline(wait.Overhead)
	p.All = append(p.All, back.Name())
	return p, g.Validate()
}

// pivot makes a cluster that managed itself do so again.
func (p *Plan) pivot(underway func() (bool, error)) {
	p.Pivot = p.b.Pivot(p.Graph).After(p.Nodes, p.Talos).ResumeWhen(underway)
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
	source   source.Backup
}

func newInputs(cfg config.Config, tools platform.Tools, source source.Backup) (inputs, error) {
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
	lostStep                struct{ inputs }
	seedStep                struct{ inputs }
	detachStep              struct{ inputs }
	applyStep               struct{ inputs }
	etcdStep                struct{ inputs }
	staleStep               struct{ inputs }
	releaseControlPlaneStep struct{ inputs }
)

// movedByThis tells whether this restore's own pivot has begun: until the restore has set it aside, the record in the
// folder is the lost cluster's.
func (r lostStep) movedByThis() (bool, error) {
	record, err := records.ReadRestore(r.tools.Files)
	if err != nil || record == nil || record.Identity != r.source.Identity() {
		return false, err
	}
	return pivotcopy.In(r.tools).Underway(r.cfg.ClusterName)
}
