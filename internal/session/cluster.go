package session

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// Cluster is a cluster as a caller asks for it: with its configuration, before anything of it is opened.
type Cluster struct {
	Caller *Caller
	Request
	Cfg settings.Configuration
}

// State is the folder to read the state from: the state folder that the request names or, where the store that STATE
// names has another content, a view of that. It removes and replaces no file of the state folder.
func (k Cluster) State(ctx context.Context) (statedir.Dir, error) {
	state, err := k.LocalState(ctx)
	if err != nil {
		return state, err
	}
	return k.viewState(ctx, state)
}

// LocalState is the state folder that the request names. A folder that belongs to another cluster is a usage.Error: no
// target reads, changes or deletes one cluster's state under the name of another.
func (k Cluster) LocalState(ctx context.Context) (statedir.Dir, error) {
	state := statedir.New(k.StateDir, k.Cfg.ClusterName, k.Caller.WorkDir)
	return state, state.CheckOwner(ctx, statedir.OwnerOf(k.Cfg.Config))
}

// StateForLab is LocalState for what is about the lab alone. That needs no cluster's name, so only one that was given
// is checked.
func (k Cluster) StateForLab(ctx context.Context) (statedir.Dir, error) {
	if _, given := k.Cfg.Places[settings.Variable("CLUSTER_NAME").Field]; given {
		return k.LocalState(ctx)
	}
	return statedir.New(k.StateDir, k.Cfg.ClusterName, k.Caller.WorkDir), nil
}

// CheckEnvironment refuses to take the state of a rehearsal for that of a real cluster, and the other way round.
func (k Cluster) CheckEnvironment(ctx context.Context) error {
	state, err := k.State(ctx)
	if err != nil {
		return err
	}
	return RefuseOtherEnvironment(state, k.Lab)
}

// RefuseOtherEnvironment refuses a state folder of the other environment.
func RefuseOtherEnvironment(state statedir.Dir, inLab bool) error {
	is, err := state.Environment()
	switch {
	case err != nil:
		return err
	case is == statedir.EnvironmentLab && !inLab:
		return usage.Errorf("%s holds the state of a rehearsal: add --lab, or name another folder (--state-dir) for the "+
			"real cluster", state)
	case is == statedir.EnvironmentHetzner && inLab:
		return usage.Errorf("%s holds the state of a real cluster: run without --lab, or name another folder (--state-dir)",
			state)
	}
	return nil
}

// OtherEnvironment reports whether a state folder belongs to another environment than the one that is asked for.
func OtherEnvironment(state statedir.Dir, environment string) (bool, error) {
	is, err := state.Environment()
	return is != "" && is != environment, err
}

// viewState returns the folder with what the store has, for what only looks. Where that cannot be had, or is refused,
// it says so, and the caller uses what the state folder has.
func (k Cluster) viewState(ctx context.Context, state statedir.Dir) (statedir.Dir, error) {
	place, ok, err := k.Place(state)
	if err != nil || !ok {
		return state, err
	}
	if other, err := OtherEnvironment(state, place.Environment); err != nil || other {
		return state, err
	}
	return k.view(ctx, state, place)
}

// view is viewState once the place of the state is known.
func (k Cluster) view(ctx context.Context, state statedir.Dir, place remotestate.Place) (statedir.Dir, error) {
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
	dir, d, relation, err := place.Inspect(asking)
	diverged, refused := (*remotestate.DivergedError)(nil), (*remotestate.RefusedError)(nil)
	switch {
	case errors.As(err, &diverged), errors.As(err, &refused), err != nil && context.Cause(ctx) == nil && !isUsage(err):
		k.Caller.noteOnce("what is shown is what %s has: %v", state, err)
		return state, nil
	case err != nil:
		return state, err
	case relation == remotestate.Behind, relation == remotestate.Overtaken:
		k.Caller.noteOnce("what is shown is the state of serial %d in %s, written %s by %s; %s is as it was, and \"state pull\" "+
			"brings it up to date", d.Serial, place.Store, d.WrittenAt(), d.By, state)
	case d.Holder != nil:
		k.Caller.noteOnce("%s is at work on this cluster; what it has not written to %s yet is not shown", d.Holder,
			place.Store)
	}
	return statedir.Dir(dir), nil
}

func isUsage(err error) bool {
	_, is := errors.AsType[*usage.Error](err)
	return is
}
