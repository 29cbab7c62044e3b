package steps

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/platform"
)

const (
	// quorumFolder holds the snapshot, the record and the journal of a recovery, in the state folder.
	quorumFolder = "recover-quorum"
	quorumRecord = "recover-quorum.json"
	// quorumPatience is how long no member of etcd may have a leader before the quorum counts as lost. An election takes a
	// second or two.
	quorumPatience = 15 * time.Second
	// inspectWithin is how long etcd's library may take to restore a snapshot of some gigabytes into a folder.
	inspectWithin = 5 * time.Minute
)

// QuorumFiles is the folder of a recovery in a state folder.
func QuorumFiles(files platform.Files) platform.Files { return files.Folder(quorumFolder) }

// ErrQuorum is wrapped by the refusal to recover an etcd that works.
var ErrQuorum = errors.New("etcd has its quorum")

// QuorumRecord is the file that records the operator's consent to a recovery: later runs resume it, and begin no other.
type QuorumRecord struct {
	Cluster string    `json:"cluster"`
	Began   time.Time `json:"began"`
}

// ReadQuorumRecord reads it; nil where there is none.
func ReadQuorumRecord(files platform.Files) (*QuorumRecord, error) {
	return readRecord[QuorumRecord](QuorumFiles(files), quorumRecord)
}

// Begin records that the recovery of a cluster was agreed to.
func (r QuorumRecord) Begin(files platform.Files) error {
	return writeRecord(QuorumFiles(files), quorumRecord, r)
}

// QuorumPlan is the graph of a recovery of an etcd that has lost its quorum, while some of its servers exist. The
// cluster continues with the data of the most advanced surviving member.
//
// No old member but that one keeps data when the new etcd is made, so the old one cannot find a quorum again beside it;
// and that one keeps them until the new etcd answers as the same cluster.
type QuorumPlan struct {
	Graph *flow.Graph
	// Before names the steps that change nothing but the state folder, All those that the recovery wants.
	Before, All []string

	Survey   *flow.Step[QuorumSurvey]
	Snapshot *flow.Step[QuorumSnapshot]
	Claim    *flow.Step[Reservation]
	Hold     *flow.Step[Pause]
	Cleared  *flow.Step[QuorumSurvey]
	Upload   *flow.Step[QuorumSurvey]
	Etcd     *flow.Step[RecoveredEtcd]
	Quiet    *flow.Step[Quiet]
	Members  *flow.Step[EtcdMembership]
	Survivor *flow.Step[EtcdMembership]
	LetGo    *flow.Step[Pause]

	q *quorum
}

// NewRecoverQuorum plans it.
func NewRecoverQuorum(cfg config.Config, tools platform.Tools) (*QuorumPlan, error) {
	b := newSet(cfg, tools, render.Sources{Vars: render.VariablesOf(cfg)})
	return newRecoverQuorum(&quorum{Set: b, patience: quorumPatience, every: controlPlaneEvery, inspect: etcd.Inspect})
}

func newRecoverQuorum(q *quorum) (*QuorumPlan, error) {
	cfg := q.cfg
	g := flow.New("slipway-recover-quorum")
	p := &QuorumPlan{Graph: g, q: q}
	wait := waitControlPlane(cfg)
	deadline := cfg.ControlPlaneTimeout.D() + overhead

	p.Survey = flow.Add(g, "survey", q.survey).
		Doc("etcd has lost its quorum for certain; which member knows most, and which server gets its data").
		Deadline(deadline).Waits(wait)

	p.Snapshot = flow.Add1(g, "snapshot", q.takeSnapshot, p.Survey).
		Doc("a snapshot of that member lies in the state folder; etcd's own library has restored it into a scratch folder").
		Verify(q.verifySnapshot).Deadline(deadline+inspectWithin).
		Waits(wait, flow.Wait{For: "etcd's library to restore it", Within: inspectWithin})

	p.Claim = flow.Add1(g, "claim", q.claimQuorum, p.Survey).After(p.Snapshot).
		Doc("nobody else recovers this cluster").
		Verify(q.verifyClaim).Deadline(reservedWithin + overhead).Waits(flow.Wait{For: "the claim", Within: reservedWithin})

	p.Hold = flow.Add1(g, "hold", q.pause, p.Survey).After(p.Claim).
		Doc("a management cluster beside the cluster is paused meanwhile").
		Deadline(overhead)

	p.Cleared = flow.Add2(g, "clear", q.clearOthers, p.Survey, p.Snapshot).After(p.Hold).
		Doc("no server but the survivor holds data of the old etcd, which therefore cannot come back").
		Deadline(deadline).Waits(wait)

	p.Upload = flow.Add2(g, "etcd-recover", q.uploadSnapshot, p.Cleared, p.Snapshot).
		Doc("the snapshot lies on the chosen server").
		Deadline(deadline).Waits(wait)

	p.Etcd = flow.Add2(g, "etcd-bootstrap", q.bootstrapRecovered, p.Upload, p.Snapshot).
		Doc("etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision").
		Deadline(deadline).Waits(wait)

	p.Quiet = flow.Add1(g, "quiet", q.quiet, p.Etcd).
		Doc("in a cluster that manages itself Cluster API stands still meanwhile").
		Deadline(quietWithin + overhead).Waits(flow.Wait{For: "its controllers to be stopped", Within: quietWithin})

	p.Members = flow.Add2(g, "etcd-members", q.awaitOthers, p.Upload, p.Etcd).After(p.Quiet).
		Doc("all servers but the survivor are voting members of the new etcd").
		Deadline(deadline).Waits(wait)

	p.Survivor = flow.Add2(g, "survivor", q.rejoinSurvivor, p.Upload, p.Members).
		Doc("the survivor gives its old data up and is a voting member, too").
		Deadline(deadline).Waits(wait)

	p.LetGo = flow.Add2(g, "let-go", q.resume, p.Hold, p.Survivor).
		Doc("every server's node is Ready, Cluster API goes on, and the claim on the recovery is given up").
		Deadline(2*cfg.NodesTimeout.D()+overhead).Waits(waitNodes(cfg),
		flow.Wait{For: "Cluster API's controllers (NODES_TIMEOUT)", Within: cfg.NodesTimeout.D()})

	p.Before, p.All = []string{p.Snapshot.Name()}, []string{p.LetGo.Name()}
	return p, g.Validate()
}

// lookWithinQuorum bounds a look that is no part of a recovery: a member that does not answer is waited for as long
// only.
const lookWithinQuorum = 2 * time.Minute

// Look makes the survey of a recovery and changes nothing, in the state folder either.
func (p *QuorumPlan) Look(ctx context.Context, say flow.Say) (QuorumSurvey, error) {
	by, err := ownership.KnownIdentity(p.q.tools)
	if err != nil {
		return QuorumSurvey{}, err
	}
	return p.q.surveyFor(ctx, say, by, min(p.q.cfg.ControlPlaneTimeout.D(), lookWithinQuorum))
}

// Takes are the steps of the recovery that take time.
func (p *QuorumPlan) Takes() []string { return quorumTakes }

// Abandon takes back what a recovery has changed that found the quorum again, before it made an etcd: the pause and the
// claim.
func (p *QuorumPlan) Abandon(ctx context.Context, say flow.Say) error {
	if err := p.q.unpause(ctx, say); err != nil {
		return err
	}
	return p.q.unclaim(ctx)
}

type quorum struct {
	*Set
	patience time.Duration // see quorumPatience
	every    time.Duration // longest time between two looks
	inspect  func(file, scratch string) (etcd.Content, error)
}
