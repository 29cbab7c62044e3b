package operations

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// errNoStore is about a command that needs STATE.
var errNoStore = usage.Errorf("STATE is not configured: name the store, as STATE=s3://bucket/prefix, k8s://namespace " +
	"or file:///folder")

// storedState is the state of a cluster in the store, and the state folder.
type storedState struct {
	remotestate.Place
	folder statedir.Dir
}

// openStore opens the store of the configured cluster's state. The folder is not touched.
func openStore(ctx context.Context, k session.Cluster) (s storedState, err error) {
	if s.folder, err = k.LocalState(ctx); err != nil {
		return s, err
	}
	var ok bool
	if s.Place, ok, err = k.Place(s.folder); err == nil && !ok {
		err = errNoStore
	}
	return s, err
}

// locked works on the state folder while no run does, unless it belongs to another environment.
func (s storedState) locked(ctx context.Context, do func() error) error {
	if other, err := session.OtherEnvironment(s.folder, s.Environment); err != nil {
		return err
	} else if other {
		return usage.Errorf("%s has the state of another environment than %s: name another folder (--state-dir)", s.folder,
			s.Environment)
	}
	unlock, err := s.folder.Journal().Lock(ctx)
	if err != nil {
		return fmt.Errorf("take the state folder: %w", err)
	}
	return errors.Join(do(), unlock())
}

// ListedState is one of the states of a store.
type ListedState struct {
	remotestate.Document
	Authentic string `json:"authentic"` // "yes", "no", or "not checked": without a key of its cluster
}

// ListStates lists the states in the store of the configured cluster's state.
func ListStates(ctx context.Context, k session.Cluster) ([]ListedState, error) {
	if k.Cfg.State == "" {
		return nil, errNoStore
	}
	access := k.StateAccess()
	store, err := access.Store()
	if err != nil {
		return nil, err
	}
	found, err := remotestate.List(ctx, store)
	if err != nil {
		return nil, fmt.Errorf("list the states in %s: %w", store, err)
	}
	all := []ListedState{}
	for _, is := range found {
		environment, cluster := is[0], is[1]
		of, keyErr := access.Keys(keys.Scope{Environment: environment, Cluster: cluster})
		d, ok, refused, err := remotestate.Place{Store: store, Environment: environment, Cluster: cluster,
			Keys: of}.Listed(ctx)
		if err != nil {
			return nil, err
		}
		if !ok { // it is gone
			continue
		}
		d.Sealed, d.Authentication = nil, nil
		one := ListedState{Document: d, Authentic: "yes"}
		switch {
		case keyErr != nil:
			one.Authentic = "not checked"
		case refused != nil:
			one.Authentic = "no"
		}
		all = append(all, one)
	}
	return all, nil
}

// ShownState is the state of a cluster in the store, beside its state folder.
type ShownState struct {
	Store    string               `json:"store"`
	Folder   string               `json:"folder"`
	Relation remotestate.Relation `json:"folderIs"`
	remotestate.Document
	Versions []int64 `json:"versions"`
	Refused  error   `json:"-"` // why what is stored is refused; then only Store, Folder and Versions are known
}

// ShowState reads the state of a cluster in the store, and compares the state folder with it.
func ShowState(ctx context.Context, k session.Cluster) (shown ShownState, err error) {
	s, err := openStore(ctx, k)
	if err != nil {
		return shown, err
	}
	d, ok, refused, err := s.refusable(ctx)
	if err != nil {
		return shown, fmt.Errorf("read the state of cluster %s: %w", s.Cluster, err)
	}
	if !ok && refused == nil {
		return shown, fmt.Errorf("%s has no state of cluster %s (%s): a run writes it, and %s", s.Store, s.Cluster,
			s.Environment, k.Caller.Command("state", "push"))
	}
	shown = ShownState{Store: s.Store.String(), Folder: string(s.folder), Document: d, Refused: refused}
	if shown.Versions, err = s.Versions(ctx); err != nil {
		return shown, fmt.Errorf("list the versions of the state: %w", err)
	}
	if refused == nil {
		shown.Relation, err = s.Compare(d)
	}
	shown.Sealed, shown.Authentication = nil, nil
	return shown, err
}

// refusable reads what is stored, and why it is refused.
func (s storedState) refusable(ctx context.Context) (d remotestate.Document, ok bool, refused, err error) {
	d, _, ok, err = s.Document(ctx)
	if is := (*remotestate.RefusedError)(nil); errors.As(err, &is) {
		return d, false, err, nil
	}
	return d, ok, nil, err
}

// StateResult is what PullState, PushState and RekeyState have done. Beside an error of PullState or PushState it is
// not empty where the state was transferred and only the lock of the state folder could not be released.
type StateResult struct {
	remotestate.Document
	Store    string
	Folder   statedir.Dir
	Relation remotestate.Relation // after PullState: remotestate.Ahead, where nothing was changed; Diverged
	Versions int                  // that RekeyState wrote anew
}

func (s storedState) result(d remotestate.Document) StateResult {
	return StateResult{Document: d, Store: s.Store.String(), Folder: s.folder}
}

// PullState brings the state folder up to date with the store, or to an older version; serial 0 means the newest. With
// force it sets aside what the state folder has changed without the store.
func PullState(ctx context.Context, k session.Cluster, serial int64, force bool) (r StateResult, err error) {
	s, err := openStore(ctx, k)
	if err != nil {
		return r, err
	}
	err = s.locked(ctx, func() error {
		d, relation, err := s.pull(ctx, serial, force)
		if err == nil {
			r = s.result(d)
			r.Relation = relation
		}
		return err
	})
	return r, err
}

// pull brings a version into the folder; serial 0 means the newest. Where a version was taken while the newest is
// refused, folder and store are remotestate.Diverged.
func (s storedState) pull(ctx context.Context, serial int64, force bool) (remotestate.Document, remotestate.Relation,
	error) {
	if serial == 0 && !force {
		return s.Pull(ctx)
	}
	if serial == 0 {
		d, err := s.Accept(ctx)
		return d, "", err
	}
	d, ok, refused, err := s.refusable(ctx)
	if err == nil && !ok && refused == nil {
		err = fmt.Errorf("%s has no state of cluster %s (%s)", s.Store, s.Cluster, s.Environment)
	}
	if err != nil {
		return d, "", err
	}
	version, err := s.Version(ctx, serial)
	if err != nil {
		return d, "", fmt.Errorf("read version %d of the state: %w", serial, err)
	}
	if refused != nil {
		return version, remotestate.Diverged, s.Overwrite(version)
	}
	return version, "", s.GoBack(version, d)
}

// PushState writes the state folder's state into the store. With force it replaces what the store has, also what is
// refused.
func PushState(ctx context.Context, k session.Cluster, force bool) (r StateResult, err error) {
	s, err := openStore(ctx, k)
	if err != nil {
		return r, err
	}
	err = s.locked(ctx, func() error {
		d, err := s.Push(ctx, k.Cfg.StateWait.D(), force, k.Caller.Note)
		if err == nil {
			r = s.result(d)
		}
		return err
	})
	return r, err
}

// RekeyState writes the state and its versions anew with the keys of now. accept takes what is not authenticated.
func RekeyState(ctx context.Context, k session.Cluster, accept bool) (r StateResult, err error) {
	s, err := openStore(ctx, k)
	if err != nil {
		return r, err
	}
	d, versions, err := s.Rekey(ctx, k.Cfg.StateWait.D(), accept, k.Caller.Note)
	r = s.result(d)
	r.Versions = versions
	return r, err
}

// UnlockState takes the state away from the run that holds it, and returns that run, or nil if none holds it. Without
// force, and if a run holds it, it returns an error that describes the risk.
func UnlockState(ctx context.Context, k session.Cluster, force bool) (*remotestate.Holder, error) {
	s, err := openStore(ctx, k)
	if err != nil {
		return nil, err
	}
	if force {
		return s.Unlock(ctx)
	}
	d, _, _, err := s.Document(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of cluster %s: %w", s.Cluster, err)
	}
	if d.Holder == nil {
		return nil, nil
	}
	return nil, usage.Errorf("the state of cluster %s is held by %s, whose last sign was at %s. A run that still works "+
		"stops at its next write; until then it and the next run both change the cluster. One that has ended loses its "+
		"lease by itself, %s after its last sign. To take it away now: %s", s.Cluster, d.Holder,
		d.Holder.Renewed.UTC().Format(time.RFC3339), d.Holder.Lease, k.Caller.Command("state", "unlock", "--force"))
}
