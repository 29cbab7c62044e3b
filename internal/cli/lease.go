package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/statestore"
	"github.com/slipway-k8s/slipway/internal/client/ratepeers"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
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
	p, err = access.Place(environmentOf(a.Options), string(state), command)
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
	r.peers = ratepeers.Join(ctx, leases, ratepeers.Project(r.tools.Token.Reveal()), r.cfg.ClusterName, holder,
		r.hub.Note)
	r.limit.Share = r.peers.Runs
}

// otherEnvironment reports whether a state folder belongs to another environment than the one that is asked for.
func otherEnvironment(state statedir.Dir, environment string) (bool, error) {
	is, err := state.Environment()
	return is != "" && is != environment, err
}

// viewState returns the folder with what the store has, for a command that only looks. Where that cannot be had, or is
// refused, it says so, and the command uses what the state folder has.
func viewState(ctx context.Context, c *console, a arguments, cfg settings.Configuration, state statedir.Dir) (statedir.Dir,
	error) {
	place, ok, err := placeOf(c, a, cfg, state)
	if err != nil || !ok {
		return state, err
	}
	if other, err := otherEnvironment(state, place.Environment); err != nil || other {
		return state, err
	}
	unlock, err := state.Journal().Lock(ctx)
	if held := (*flow.LockedError)(nil); errors.As(err, &held) {
		return state, nil // what the run in this folder knows is newer
	}
	if err != nil {
		return state, err
	}
	defer func() { _ = unlock() }()
	asking, cancel := context.WithTimeout(ctx, pullWithin)
	defer cancel()
	dir, d, relation, err := place.Look(asking)
	diverged, refused := (*remotestate.DivergedError)(nil), (*remotestate.RefusedError)(nil)
	switch {
	case errors.As(err, &diverged), errors.As(err, &refused), err != nil && context.Cause(ctx) == nil && !isUsage(err):
		tellOnce(c, "what is shown is what %s has: %v", state, err)
		return state, nil
	case err != nil:
		return state, err
	case relation == remotestate.Behind, relation == remotestate.Overtaken:
		tellOnce(c, "what is shown is the state of serial %d in %s, written %s by %s; %s is as it was, and \"state pull\" brings "+
			"it up to date", d.Serial, place.Store, writtenAt(d), d.By, state)
	case d.Holder != nil:
		tellOnce(c, "%s is at work on this cluster; what it has not written to %s yet is not shown", d.Holder, place.Store)
	}
	return statedir.Dir(dir), nil
}

// tellOnce is tell for what each look of one command would say.
func tellOnce(c *console, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if c.told == line {
		return
	}
	c.told = line
	tell(c, "%s", line)
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
	other, err := otherEnvironment(state, place.Environment)
	if err == nil && other { // what a rehearsal left is no part of a real cluster's state
		err = state.Claim(ctx, statedir.OwnerOf(cfg.Config), place.Environment, say)
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
