// Package quorum is the plan that recovers an etcd that has lost its quorum from its most advanced member.
package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/etcddata"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

const (
	// quorumPatience is how long no member of etcd may have a leader before the quorum counts as lost. An election takes a
	// second or two.
	quorumPatience = 15 * time.Second
	// inspectWithin is how long etcd's library may take to restore a snapshot of some gigabytes into a folder.
	inspectWithin = 5 * time.Minute
)

// ErrQuorum is wrapped by the refusal to recover an etcd that works.
var ErrQuorum = errors.New("etcd has its quorum")

// Plan is the graph of a recovery of an etcd that has lost its quorum, while some of its servers exist. The
// cluster continues with the data of the most advanced surviving member.
//
// No old member but that one keeps data when the new etcd is made, so the old one cannot find a quorum again beside it;
// and that one keeps them until the new etcd answers as the same cluster.
type Plan struct {
	Graph *flow.Graph
	// Before names the steps that change nothing but the state folder, All those that the recovery wants.
	Before, All []string

	Survey   *flow.Step[etcddata.Survey]
	Snapshot *flow.Step[Snapshot]
	Claim    *flow.Step[steps.Reservation]
	Paused   *flow.Step[Pause]
	Cleared  *flow.Step[etcddata.Survey]
	Upload   *flow.Step[etcddata.Survey]
	Etcd     *flow.Step[recovery.Etcd]
	Quiet    *flow.Step[recovery.Quiet]
	Members  *flow.Step[recovery.Membership]
	Survivor *flow.Step[recovery.Membership]
	Resumed  *flow.Step[Pause]

	in inputs
}

// New plans the recovery. It makes no request.
func New(cfg config.Config, tools platform.Tools) (*Plan, error) {
	return newPlan(inputs{cfg: cfg, tools: tools.WithDefaults(), patience: quorumPatience, every: wait.ControlPlaneEvery,
		inspect: etcd.Inspect})
}

func newPlan(q inputs) (*Plan, error) {
	cfg := q.cfg
	survey, snapshot, pause, etcd := surveyStep{q}, snapshotStep{q}, pauseStep{q}, recoverStep{q}
	g := flow.New("slipway-recover-quorum")
	p := &Plan{Graph: g, in: q}
	controlPlane := wait.ControlPlane(cfg)
	deadline := cfg.ControlPlaneTimeout.D() + wait.Overhead

	p.Survey = flow.Add(g, "survey", survey.survey).
		Doc("etcd has lost its quorum for certain; which member is the most advanced, and which server gets its data").
		Deadline(deadline).Waits(controlPlane)

	p.Snapshot = flow.Add1(g, "snapshot", snapshot.takeSnapshot, p.Survey).
		Doc("the state folder has a snapshot of that member; etcd's own library has restored it into a scratch folder").
		Verify(snapshot.verifySnapshot).Deadline(deadline+inspectWithin).
		Waits(controlPlane, flow.Wait{For: "etcd's library to restore it", Within: inspectWithin})

	p.Claim = flow.Add1(g, "claim", pause.claimQuorum, p.Survey).After(p.Snapshot).
		Doc("no other state folder recovers this cluster").
		Verify(recovery.VerifyClaim(cfg, q.tools)).Deadline(wait.ReservedWithin + wait.Overhead).
		Waits(recovery.WaitClaim)

	p.Paused = flow.Add1(g, "hold", pause.pause, p.Survey).After(p.Claim).
		Doc("a management cluster beside the cluster is paused meanwhile").
		Deadline(wait.Overhead)

	p.Cleared = flow.Add2(g, "clear", etcd.clearOthers, p.Survey, p.Snapshot).After(p.Paused).
		Doc("no server but the survivor holds data of the old etcd, which therefore cannot come back").
		Deadline(deadline).Waits(controlPlane)

	p.Upload = flow.Add2(g, "etcd-recover", etcd.uploadSnapshot, p.Cleared, p.Snapshot).
		Doc("the chosen server has the snapshot").
		Deadline(deadline).Waits(controlPlane)

	p.Etcd = flow.Add2(g, "etcd-bootstrap", etcd.bootstrapRecovered, p.Upload, p.Snapshot).
		Doc("etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision").
		Deadline(deadline).Waits(controlPlane)

	p.Quiet = flow.Add1(g, "quiet", pause.quiet, p.Etcd).
		Doc("in a cluster that manages itself Cluster API is stopped meanwhile").
		Deadline(recovery.QuietWithin + wait.Overhead).
		Waits(flow.Wait{For: "its controllers to be stopped", Within: recovery.QuietWithin})

	p.Members = flow.Add2(g, "etcd-members", etcd.awaitOthers, p.Upload, p.Etcd).After(p.Quiet).
		Doc("all servers but the survivor are voting members of the new etcd").
		Deadline(deadline).Waits(controlPlane)

	p.Survivor = flow.Add2(g, "survivor", etcd.rejoinSurvivor, p.Upload, p.Members).
		Doc("the survivor drops its old data and is a voting member, too").
		Deadline(deadline).Waits(controlPlane)

	p.Resumed = flow.Add2(g, "let-go", pause.resume, p.Paused, p.Survivor).
		Doc("every server's node is Ready, Cluster API reconciles again, and the claim on the recovery is released").
		Deadline(2*cfg.NodesTimeout.D()+wait.Overhead).
		Waits(wait.Nodes(cfg), flow.Wait{For: "Cluster API's controllers (NODES_TIMEOUT)", Within: cfg.NodesTimeout.D()})

	p.Before, p.All = []string{p.Snapshot.Name()}, []string{p.Resumed.Name()}
	return p, g.Validate()
}

// lookWithin bounds a look that is no part of a recovery: a member that does not answer is waited for as long
// only.
const lookWithin = 2 * time.Minute

// Look makes the survey of a recovery and changes nothing, in the state folder either.
func (p *Plan) Look(ctx context.Context, say flow.Say) (etcddata.Survey, error) {
	by, err := ownership.KnownIdentity(p.in.tools)
	if err != nil {
		return etcddata.Survey{}, err
	}
	return surveyStep{p.in}.surveyFor(ctx, say, by, min(p.in.cfg.ControlPlaneTimeout.D(), lookWithin))
}

// Takes are the steps of the recovery that take time.
func (p *Plan) Takes() []string { return recovery.QuorumSteps }

// Abandon takes back what a recovery has changed that found the quorum again, before it made an etcd: the pause and the
// claim.
func (p *Plan) Abandon(ctx context.Context, say flow.Say) error {
	if err := (pauseStep{p.in}).unpause(ctx, say); err != nil {
		return err
	}
	return pauseStep{p.in}.unclaim(ctx)
}

// inputs is what the steps of a recovery are made from.
type inputs struct {
	cfg      config.Config
	tools    platform.Tools
	patience time.Duration // see quorumPatience
	every    time.Duration // longest time between two looks
	inspect  func(file, scratch string) (etcd.Content, error)
}

// The steps of a recovery.
type (
	surveyStep   struct{ inputs }
	snapshotStep struct{ inputs }
	pauseStep    struct{ inputs } // of the claim, and of what is stopped meanwhile
	recoverStep  struct{ inputs } // of etcd itself
)
