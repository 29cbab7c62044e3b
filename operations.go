package slipway

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// UpgradeOptions are the choices of an upgrade to the versions of the configuration.
type UpgradeOptions struct {
	// Via has patch releases of Kubernetes to go through, in place of the newest of each minor version in between.
	Via []string
	// PauseAfter is a stage to end after; empty: none. The same call without it does the rest.
	PauseAfter string
	// InPlace upgrades Talos to a patch release on the control plane servers that there are, without replacing them.
	InPlace bool
}

// UpgradeResult is what an upgrade has come to.
type UpgradeResult struct {
	Stages []string // in their order; empty: there was nothing to upgrade
	Done   bool     // no stage is left
}

// Upgrade brings the cluster to the versions of the configuration, stage by stage, with a check after each. It needs
// Options.Yes, or Options.Confirm. One that was cut off is resumed by the same call.
func (s *Session) Upgrade(ctx context.Context, o UpgradeOptions) (r UpgradeResult, err error) {
	err = s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		is, err := operations.Upgrade(ctx, s.session, operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
			InPlace: o.InPlace, Again: []string{"upgrade"}}, ask)
		for _, stage := range is.Stages {
			r.Stages = append(r.Stages, stage.Name)
		}
		r.Done = is.Done
		return err
	})
	return r, err
}

// ScaleControlPlane changes the number of servers of the control plane, one after another while etcd keeps its quorum.
func (s *Session) ScaleControlPlane(ctx context.Context, servers int) error {
	return s.scale(ctx, operations.ScaleOptions{Count: servers})
}

// ScalePool changes the number of servers of a worker pool. To delete servers it needs Options.Yes, or Options.Confirm.
func (s *Session) ScalePool(ctx context.Context, pool string, servers int) error {
	return s.scale(ctx, operations.ScaleOptions{Pool: pool, Count: servers})
}

func (s *Session) scale(ctx context.Context, o operations.ScaleOptions) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		return operations.Scale(ctx, s.session, o, ask)
	})
}

// ReplaceMachine creates a new control plane server in the place of that of a Machine, if etcd can do without it
// meanwhile.
func (s *Session) ReplaceMachine(ctx context.Context, machine string) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		_, err := operations.ReplaceMachine(ctx, s.session, machine, ask)
		return err
	})
}

// DestroyOptions are what a deletion takes besides the cluster.
type DestroyOptions struct {
	Images      bool // the snapshots that were made for the cluster, too
	Volumes     bool // the volumes that were made in the cluster, too, with their data
	KeepAddress bool // leaves the Primary IP of the control plane endpoint to the next cluster of this name
}

// Destroy deletes the cluster and everything that was created for it, for good, and makes the state folder free for
// another one. It needs Options.Yes, or Options.Confirm.
func (s *Session) Destroy(ctx context.Context, o DestroyOptions) error {
	return s.operate(ctx, func(ctx context.Context, ask session.Questions) error {
		return operations.Destroy(ctx, s.session, operations.DestroyOptions{Options: destroy.Options{Images: o.Images,
			Volumes: o.Volumes, KeepAddress: o.KeepAddress}}, ask)
	})
}

// operate carries an operation out with the journal locked. It ends where the lease of the state is lost.
func (s *Session) operate(ctx context.Context, do func(context.Context, session.Questions) error) error {
	ctx, end := s.until(ctx)
	defer end()
	s.err = s.session.Locked(ctx, func(ctx context.Context) error { return do(ctx, s.questions()) })
	return s.err
}
