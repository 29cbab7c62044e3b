package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/client/ratepeers"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

const (
	// pullWithin is how long a command that only looks waits for the store before it uses what the state folder has.
	pullWithin = 15 * time.Second
	// releaseWithin bounds the end of a lease, which Ctrl-C does not cut off.
	releaseWithin = 30 * time.Second
)

// StateAccess is what the store that STATE names is opened with.
func (k Cluster) StateAccess() remotestate.Access {
	return remotestate.Access{Config: k.Cfg.Config, Environment: k.Caller.Environment, WorkDir: k.Caller.WorkDir,
		Hide: k.Caller.Hide}
}

// Place is where the state of the configured cluster is; ok is false where it is in the state folder alone.
func (k Cluster) Place(state statedir.Dir) (p remotestate.Place, ok bool, err error) {
	if k.Cfg.State == "" || k.Caller.KeepStateLocal {
		return p, false, nil
	}
	command := strings.Join(k.Targets, " ")
	if command == "" {
		command = TargetBootstrap
	}
	p, err = k.StateAccess().Place(k.Environment(), string(state), command)
	return p, true, err
}

// sharePeers has the run keep to its part of the rate limit of the Hetzner project, where the state is in a Kubernetes
// cluster: there the runs of a project find one another. It needs the run's token, and comes before its first request.
func (s *Session) sharePeers(ctx context.Context) {
	if s.Caller.KeepStateLocal {
		return
	}
	leases, ok, err := s.StateAccess().Leases()
	if err != nil {
		s.Hub.Note("this run does not look for other runs of its Hetzner project, which share the rate limit: %v", err)
	}
	if err != nil || !ok {
		return
	}
	holder := fmt.Sprintf("%s/%s/%s", remotestate.Here("").Host, s.Cfg.ClusterName, s.ID)
	s.peers = ratepeers.Join(ctx, leases, ratepeers.Project(s.Tools.Token.Reveal()), s.Cfg.ClusterName, holder, s.Hub.Note)
	s.Limit.Share = s.peers.Runs
}

// lease is the lease of a run; one without a session is of a state folder that no other machine knows.
type lease struct{ session *remotestate.Session }

// takeLease waits for the lease of the cluster's state and brings the state folder up to date. The context that it
// returns ends with the lease.
func (k Cluster) takeLease(ctx context.Context) (context.Context, lease, error) {
	state, err := k.LocalState(ctx)
	if err != nil {
		return ctx, lease{}, err
	}
	place, ok, err := k.Place(state)
	if err != nil {
		return ctx, lease{}, err
	}
	if !ok {
		if store := remotestate.StoreOf(string(state)); store != "" {
			k.Caller.Note("the state in %s is also in %s, and STATE is not configured: this run does not write there", state,
				store)
		}
		return ctx, lease{}, nil
	}
	other, err := OtherEnvironment(state, place.Environment)
	if err == nil && other { // what a rehearsal left is no part of a real cluster's state
		err = state.Claim(ctx, statedir.OwnerOf(k.Cfg.Config), place.Environment, k.Caller.Note)
	}
	if err != nil {
		return ctx, lease{}, err
	}
	leased, session, err := remotestate.Acquire(ctx, place, k.Cfg.StateWait.D(), k.Caller.Note)
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
func (l lease) end(ctx context.Context, c *Caller, err error) error {
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
			c.Command("state", "push"))
	}
	return errors.Join(err, released)
}
