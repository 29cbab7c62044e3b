// Package quorum is the plan that recovers an etcd that has lost its quorum from its most advanced member.
package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/etcd"
	"github.com/slipway-k8s/slipway/internal/cluster/etcdview"
	"github.com/slipway-k8s/slipway/internal/cluster/ownership"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/platform"
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

	Survey   *flow.Step[etcdview.Survey]
	Snapshot *flow.Step[Snapshot]

	in inputs
}

// New plans the recovery. It makes no request.
func New(cfg config.Config, tools platform.Tools) (*Plan, error) {
	return newPlan(inputs{cfg: cfg, tools: tools.WithDefaults(), patience: quorumPatience, every: wait.ControlPlaneEvery,
		inspect: etcd.Inspect})
}

func newPlan(q inputs) (*Plan, error) {
	cfg, g := q.cfg, flow.New("slipway-recover-quorum")
	p := &Plan{Graph: g, in: q}

	p.Survey = recovery.AddForServers(g, cfg, flow.Task[etcdview.Survey]{
		Name: "survey",
		Doc:  "etcd has lost its quorum for certain; which member is the most advanced, and which server gets its data",
		Run:  flow.Do(q.survey),
	})
	p.Snapshot = recovery.AddForServers(g, cfg, flow.Task[Snapshot]{
		Name:   "snapshot",
		Doc:    "the state folder has a snapshot of that member; etcd's own library has restored it into a scratch folder",
		Run:    flow.With1(q.takeSnapshot, p.Survey),
		Verify: q.verifySnapshot,
	}, flow.Wait{For: "etcd's library to restore it", Within: inspectWithin})
	claim := recovery.AddClaim(g, cfg, q.tools, "no other state folder recovers this cluster", nil,
		flow.With1(q.claimQuorum, p.Survey)).After(p.Snapshot)
	paused := flow.Add(g, flow.Task[Pause]{
		Name:     "hold",
		Doc:      "a management cluster beside the cluster is paused meanwhile",
		Run:      flow.With1(q.pause, p.Survey),
		After:    flow.Of(claim),
		Deadline: wait.Overhead,
	})
	cleared := recovery.AddForServers(g, cfg, flow.Task[etcdview.Survey]{
		Name:  "clear",
		Doc:   "no server but the survivor holds data of the old etcd, which therefore cannot come back",
		Run:   flow.With2(q.clearOthers, p.Survey, p.Snapshot),
		After: flow.Of(paused),
	})
	upload := recovery.AddForServers(g, cfg, flow.Task[etcdview.Survey]{
		Name: "etcd-recover",
		Doc:  "the chosen server has the snapshot",
		Run:  flow.With2(q.uploadSnapshot, cleared, p.Snapshot),
	})
	etcd := recovery.AddForServers(g, cfg, flow.Task[recovery.Etcd]{
		Name: "etcd-bootstrap",
		Doc:  "etcd runs on that one server, on the snapshot's data: the same cluster answers, by its UID and revision",
		Run:  flow.With2(q.bootstrapRecovered, upload, p.Snapshot),
	})
	quiet := flow.Add(g, flow.Task[recovery.Quiet]{
		Name:     "quiet",
		Doc:      "in a cluster that manages itself Cluster API is stopped meanwhile",
		Run:      flow.With1(q.quiet, etcd),
		Deadline: recovery.QuietWithin + wait.Overhead,
		Waits:    []flow.Wait{{For: "its controllers to be stopped", Within: recovery.QuietWithin}},
	})
	members := recovery.AddForServers(g, cfg, flow.Task[recovery.Membership]{
		Name:  "etcd-members",
		Doc:   "all servers but the survivor are voting members of the new etcd",
		Run:   flow.With2(q.awaitOthers, upload, etcd),
		After: flow.Of(quiet),
	})
	survivor := recovery.AddForServers(g, cfg, flow.Task[recovery.Membership]{
		Name: "survivor",
		Doc:  "the survivor drops its old data and is a voting member, too",
		Run:  flow.With2(q.rejoinSurvivor, upload, members),
	})
	resumed := flow.Add(g, flow.Task[Pause]{
		Name:     "let-go",
		Doc:      "every server's node is Ready, Cluster API reconciles again, and the claim on the recovery is released",
		Run:      flow.With2(q.resume, paused, survivor),
		Deadline: 2*cfg.NodesTimeout.D() + wait.Overhead,
		Waits: []flow.Wait{
			wait.Nodes(cfg),
			{For: "Cluster API's controllers (NODES_TIMEOUT)", Within: cfg.NodesTimeout.D()},
		},
	})
	p.Before, p.All = []string{p.Snapshot.Name()}, []string{resumed.Name()}
	return p, g.Validate()
}

// lookWithin bounds a look that is no part of a recovery: a member that does not answer is waited for as long
// only.
const lookWithin = 2 * time.Minute

// Inspect makes the survey of a recovery and changes nothing, in the state folder either.
func (p *Plan) Inspect(ctx context.Context, say flow.Say) (etcdview.Survey, error) {
	by, err := ownership.KnownIdentity(p.in.tools)
	if err != nil {
		return etcdview.Survey{}, err
	}
	return p.in.surveyFor(ctx, say, by, min(p.in.cfg.ControlPlaneTimeout.D(), lookWithin))
}

// Takes are the steps of the recovery that take time.
func (p *Plan) Takes() []string { return recovery.QuorumSteps }

// Abandon takes back what a recovery has changed that found the quorum again, before it made an etcd: the pause and the
// claim.
func (p *Plan) Abandon(ctx context.Context, say flow.Say) error {
	if err := p.in.unpause(ctx, say); err != nil {
		return err
	}
	return p.in.unclaim(ctx)
}

// inputs is what the steps of a recovery are made from.
type inputs struct {
	cfg      config.Config
	tools    platform.Tools
	patience time.Duration // see quorumPatience
	every    time.Duration // longest time between two looks
	inspect  func(file, scratch string) (etcd.Content, error)
}
