package steps

import (
	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/recovery/source"
	"github.com/slipway-k8s/slipway/platform"
)

// RestorePlan is the graph of a restore after all servers are lost: the bootstrap, with the recovery of etcd in the
// place of the bootstrap of a new one. What the file holds comes back; nothing of it is made a second time.
type RestorePlan struct {
	Graph *flow.Graph
	// All names the steps that a restore wants; the others hang below them.
	All []string

	Lost          *flow.Step[Lost]
	Claim         *flow.Step[Reservation]
	Preflight     *flow.Step[Offer]
	Image         *flow.Step[Image]
	Management    *flow.Step[Management]
	Providers     *flow.Step[Providers]
	Secret        *flow.Step[TokenSecret]
	Seed          *flow.Step[Seed]
	Lifted        *flow.Step[DetachedFirewall]
	Cluster       *flow.Step[Cluster]
	Target        *flow.Step[RecoveryTarget]
	Upload        *flow.Step[RecoveryTarget]
	Etcd          *flow.Step[RecoveredEtcd]
	Kubeconfig    *flow.Step[Kubeconfig]
	Quiet         *flow.Step[Quiet]
	Sweep         *flow.Step[Sweep]
	Members       *flow.Step[EtcdMembership]
	Release       *flow.Step[Cluster]
	Talos         *flow.Step[Talosconfig]
	Nodes         *flow.Step[Nodes]
	HandOver      *flow.Step[Reservation]
	Pivot         *flow.Step[Pivot] // nil: the cluster did not manage itself
	Access        *flow.Step[Access]
	Firewall      *flow.Step[Firewall] // nil: it had none
	FirewallApply *flow.Step[FirewallAttachment]
	Clean         *flow.Step[Clean]

	b *Set
	r *restorer
}

// NewRestore plans the restore of a backup. cfg is a valid configuration; what the backup knows better of its cluster
// (the server type, the image, the versions, the number of servers) is taken from there.
func NewRestore(cfg config.Config, tools platform.Tools, source source.Backup) (*RestorePlan, error) {
	cfg, err := source.Configure(cfg)
	if err != nil {
		return nil, err
	}
	b, err := NewSet(cfg, tools)
	if err != nil {
		return nil, err
	}
	r := &restorer{Set: b, source: source}
	g := flow.New("slipway-restore")
	p := &RestorePlan{Graph: g, b: b, r: r}
	id := source.Identity()
	controlPlane := waitControlPlane(cfg)

	p.Lost = flow.Add(g, "lost", r.ensureLost).
		Doc("the cluster is gone for certain: no server, no API, nobody who manages it; and what of it survived").
		Spec(id).Verify(r.verifyLost).Deadline(overhead)

	p.Claim = flow.Add1(g, "claim", r.claimRestore, p.Lost).
		Doc("nobody else restores this cluster").
		Spec(id).Verify(r.verifyClaim).Deadline(reservedWithin + overhead).Waits(flow.Wait{For: "the claim",
		Within: reservedWithin})

	p.Preflight = b.Preflight(g).After(p.Claim)
	p.Image = b.Image(g, p.Preflight)
	p.Management = b.Management(g).After(p.Preflight)
	p.Providers = b.Providers(g, p.Management)
	p.Secret = b.TokenSecret(g, p.Management)

	p.Seed = flow.Add1(g, "seed", r.seedSecrets, p.Management).
		Doc("the lost cluster's authorities, keys and tokens, in the management cluster before anything asks for new ones").
		Spec(id).Verify(r.verifySecrets).Deadline(overhead).Waits(waitTaken)

	p.Lifted = flow.Add(g, "firewall-lift", r.detachFirewall).After(p.Claim).
		Doc("no surviving firewall keeps the temporary management cluster from the new servers").
		Spec(id).Deadline(overhead)

	p.Cluster = flow.Add3(g, "apply", r.applyHeld, p.Management, p.Lost, p.Image).After(p.Providers, p.Secret, p.Seed,
		p.Lifted).
		Doc("the cluster's objects as they were; the control plane provider is held off, so that it founds no empty etcd").
		Spec(id).Verify(r.verifyCluster).Deadline(2*cfg.LoadBalancerTimeout.D()+overhead).
		Waits(waitWebhooks(cfg), waitLoadBalancer(cfg))

	p.Target = flow.Add2(g, "servers", r.chooseTarget, p.Management, p.Cluster).
		Doc("the servers are made, Talos answers on each, and none has an etcd; one is chosen to get the snapshot").
		Spec(id).Verify(r.verifyTarget).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Upload = flow.Add3(g, "etcd-recover", r.uploadSnapshot, p.Management, p.Cluster, p.Target).
		Doc("the etcd snapshot lies on the chosen server").
		Spec(id).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Etcd = flow.Add3(g, "etcd-bootstrap", r.bootstrapRecovered, p.Management, p.Cluster, p.Upload).
		Doc("etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision").
		Spec(id).Verify(r.verifyEtcd).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Kubeconfig = b.Kubeconfig(g, p.Management, p.Cluster)

	p.Quiet = flow.Add2(g, "quiet", r.quietStale, p.Kubeconfig, p.Etcd).
		Doc("Cluster API of the time of the snapshot, which woke up with it, is stopped before it makes servers").
		Spec(id).Deadline(quietWithin + overhead).Waits(flow.Wait{For: "the old controllers to be stopped",
		Within: quietWithin})

	p.Sweep = flow.Add3(g, "sweep", r.sweepStale, p.Kubeconfig, p.Management, p.Cluster).After(p.Quiet).
		Doc("objects and nodes of the lost servers are gone; the cloud controller manager has today's token and network").
		Spec(id).Deadline(sweepWithin + overhead).Waits(flow.Wait{For: "the restored cluster to take changes",
		Within: sweepWithin})

	p.Members = flow.Add3(g, "etcd-members", r.awaitMembers, p.Management, p.Cluster, p.Etcd).
		Doc("every control plane server is a voting member of that one etcd").
		Spec(id).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Release = flow.Add2(g, "release", r.releaseControlPlane, p.Management, p.Cluster).After(p.Members, p.Sweep).
		Doc("the control plane provider is let go, and has seen that etcd is there").
		Spec(id).Verify(r.verifyRelease).Deadline(cfg.ControlPlaneTimeout.D() + overhead).Waits(controlPlane)

	p.Talos = b.Talosconfig(g, p.Management, p.Release)
	p.Nodes = b.Nodes(g, p.Management, p.Release, p.Kubeconfig)

	p.All = []string{p.Talos.Name(), p.Nodes.Name()}
	last := flow.Node(p.Nodes)
	if source.Contents.Header.SelfManaged {
		p.pivot(r.pivotUnderway)
		last = p.Access
	}
	p.HandOver = flow.Add(g, "reserve", r.handOver).After(last).
		Doc("the cluster's name is this state folder's, as after a bootstrap, and the claim on restoring it is given up").
		Deadline(reservedWithin + overhead).Waits(waitReserved)
	p.All = append(p.All, p.HandOver.Name())
	if source.Contents.Header.SelfManaged && hadFirewall(source) {
		p.addFirewall()
		return p, g.Validate()
	}
	back := flow.Add(g, "firewall-return", r.attachFirewall).After(last).
		Doc("the servers are behind the firewall that the lost ones were behind").
		Deadline(overhead)
	p.All = append(p.All, back.Name())
	return p, g.Validate()
}

// pivot makes a cluster that managed itself do so again.
func (p *RestorePlan) pivot(underway func() (bool, error)) {
	p.Pivot = p.b.Pivot(p.Graph).After(p.Nodes, p.Talos).ResumeWhen(underway)
	p.Access = p.b.Access(p.Graph).After(p.Pivot)
	p.Clean = p.b.Clean(p.Graph).After(p.Pivot).OrderAfter(p.Access)
	p.All = []string{p.Access.Name(), p.Clean.Name()}
}

// addFirewall puts the cluster behind its firewall again.
func (p *RestorePlan) addFirewall() {
	p.Firewall = p.b.Firewall(p.Graph).After(p.Pivot)
	p.FirewallApply = p.b.FirewallApply(p.Graph, p.Firewall).After(p.Access)
	p.All = append(p.All, p.FirewallApply.Name())
}

// restorer is a Set that has a backup.
type restorer struct {
	*Set
	source source.Backup
}

// pivotUnderway tells whether this restore's own pivot has begun: until the restore has set it aside, the record in the
// folder is the lost cluster's.
func (r *restorer) pivotUnderway() (bool, error) {
	record, err := ReadRestoreRecord(r.tools.Files)
	if err != nil || record == nil || record.Identity != r.source.Identity() {
		return false, err
	}
	return r.PivotUnderway()
}
