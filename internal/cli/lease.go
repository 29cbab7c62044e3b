package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cli/statestore"
	"github.com/slipway-k8s/slipway/internal/ratepeers"
	"github.com/slipway-k8s/slipway/internal/remotestate"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/statedir"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/internal/usage"
)

const (
	// pullWithin is how long a command that only looks waits for the store before it uses what the state folder has.
	pullWithin = 15 * time.Second
	// releaseWithin bounds the end of a lease, which Ctrl-C does not cut off.
	releaseWithin = 30 * time.Second
)

// tell writes a line on standard error: for what is said before a run has its display.
func tell(c *console, format string, args ...any) {
	fmt.Fprint(c.stderr, text.Fold(c.hide.Text("note: "+fmt.Sprintf(format, args...))+"\n", errorWidth(c)))
}

// placeOf is where the state of the configured cluster is; ok is false where it is in the state folder alone.
func placeOf(c *console, a arguments, cfg settings.Configuration, state statedir.Dir) (p remotestate.Place, ok bool,
	err error) {
	if cfg.State == "" || c.stateStays {
		return p, false, nil
	}
	command := strings.Join(a.Targets, " ")
	if command == "" {
		command = targetBootstrap
	}
	access := statestore.Access{Config: cfg.Config, Environment: c.environment, WorkDir: c.workDir, Hide: c.hide}
	p, err = access.Place(worldOf(a.Options), string(state), command)
	return p, true, err
}

// sharePeers has the run keep to its part of the rate limit of the Hetzner project, where the state is in a Kubernetes
// cluster: there the runs of a project find one another. It needs the run's token, and comes before its first request.
func sharePeers(ctx context.Context, r *running) {
	if r.console.stateStays {
		return
	}
	access := statestore.Access{Config: r.cfg.Config, Environment: r.console.environment, WorkDir: r.console.workDir,
		Hide: r.console.hide}
	leases, ok, err := access.Leases()
	if err != nil {
		r.hub.Note("this run does not look for other runs of its Hetzner project, which share the rate limit: %v", err)
	}
	if err != nil || !ok {
		return
	}
	holder := fmt.Sprintf("%s/%s/%s", remotestate.Here("").Host, r.cfg.ClusterName, r.id)
	r.peers = ratepeers.Join(ctx, leases, ratepeers.Project(r.tools.Token.Reveal()), holder, r.hub.Note)
	r.limit.Share = r.peers.Runs
}

// otherWorld reports whether a state folder belongs to another environment than the one that is asked for.
func otherWorld(state statedir.Dir, world string) (bool, error) {
	is, err := state.World()
	return is != "" && is != world, err
}

// pullState brings the state folder up to date, for a command that only looks. Where that cannot be done it says so,
// and the command uses what the folder has.
func pullState(ctx context.Context, c *console, a arguments, cfg settings.Configuration, state statedir.Dir) error {
	place, ok, err := placeOf(c, a, cfg, state)
	if err != nil || !ok {
		return err
	}
	if other, err := otherWorld(state, place.World); err != nil || other {
		return err
	}
	unlock, err := state.Journal().Lock(ctx)
	if held := (*flow.LockedError)(nil); errors.As(err, &held) {
		return nil // what the run in this folder knows is newer
	}
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	asking, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	d, relation, err := place.Pull(asking)
	diverged := (*remotestate.DivergedError)(nil)
	switch {
	case err == nil && relation == remotestate.Overtaken:
		tell(c, "another run has worked since this folder was last the same as %s: what it had is in %s", place.Store,
			state.Path(statedir.AsideName))
	case err == nil && relation == remotestate.Behind:
		tell(c, "%s has the state of serial %d now, written %s by %s", state, d.Serial, writtenAt(d), d.By)
	case err == nil && d.Holder != nil:
		tell(c, "%s is at work on this cluster; what it has not written to %s yet is not shown", d.Holder, place.Store)
	case errors.As(err, &diverged), err != nil && context.Cause(ctx) == nil && !isUsage(err):
		tell(c, "what is shown is what %s has: %v", state, err)
		return nil
	}
	return err
}

func isUsage(err error) bool {
	_, is := errors.AsType[*usage.Error](err)
	return is
}

// lease is the lease of a run; one without a session is of a state folder that no other machine knows.
type lease struct{ session *remotestate.Session }

// takeLease waits for the lease of the cluster's state and brings the state folder up to date. The context that it
// returns ends with the lease.
func takeLease(ctx context.Context, c *console, a arguments, cfg settings.Configuration) (context.Context, lease,
	error) {
	state, err := localStateOf(ctx, c, a, cfg)
	if err != nil {
		return ctx, lease{}, err
	}
	place, ok, err := placeOf(c, a, cfg, state)
	if err != nil {
		return ctx, lease{}, err
	}
	if !ok {
		if store := remotestate.StoreOf(string(state)); store != "" {
			tell(c, "the state in %s is also in %s, and STATE is not configured: this run does not write there", state, store)
		}
		return ctx, lease{}, nil
	}
	say := func(format string, args ...any) { tell(c, format, args...) }
	other, err := otherWorld(state, place.World)
	if err == nil && other { // what a rehearsal left is no part of a real cluster's state
		err = state.Claim(ctx, statedir.OwnerOf(cfg.Config), place.World, say)
	}
	if err != nil {
		return ctx, lease{}, err
	}
	leased, session, err := remotestate.Acquire(ctx, place, cfg.StateWait.D(), say)
	if diverged := (*remotestate.DivergedError)(nil); errors.As(err, &diverged) {
		err = &usage.Error{Err: err}
	}
	if err != nil {
		return ctx, lease{}, err
	}
	return leased, lease{session}, nil
}

// end writes what has changed and gives the lease back. Where the lease was lost that is the error of the run, whatever
// else its steps said.
func (l lease) end(ctx context.Context, c *console, err error) error {
	if l.session == nil {
		return err
	}
	lost := l.session.Guard()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	released := l.session.Release(ctx)
	if lost != nil {
		return lost
	}
	if released != nil {
		released = fmt.Errorf("%w\nwhat the run knows is in its state folder; to write it: %s", released,
			commandLine(c, "state", "push"))
	}
	return errors.Join(err, released)
}
