package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/keys"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/objectstore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// stateOptions are the flags of state and of what is below it.
type stateOptions struct {
	Force   bool
	Version string // serial; empty: the newest
	Accept  bool   // what is not authenticated
}

func newStateCommand(in *invocation) *cobra.Command {
	var o stateOptions
	bound := func(do func(context.Context, *console, arguments, stateOptions) error) action {
		return func(ctx context.Context, c *console, a arguments) error { return do(ctx, c, a, o) }
	}
	list := in.command("list", "", "list the clusters that the store has states of", runStateList)
	show := in.command("show", "", "show the state of the cluster: who holds it, its versions, how the state folder differs",
		runStateShow)
	pull := in.command("pull", "", "bring the state folder up to date with the store", bound(runStatePull))
	pull.Flags().BoolVar(&o.Force, "force", false, "set aside what the state folder has changed without the store")
	pull.Flags().StringVar(&o.Version, "version", "", "take an older version, by its `SERIAL`; state show lists them")
	push := in.command("push", "", "write the state folder's state into the store", bound(runStatePush))
	push.Flags().BoolVar(&o.Force, "force", false, "replace what the store has, also what is refused")
	rekey := in.command("rekey", "", "write the state and its versions anew with the keys of now", bound(runStateRekey))
	rekey.Flags().BoolVar(&o.Accept, "accept-unauthenticated", false, "take what an older release wrote as it is")
	unlock := in.command("unlock", "", "take the state away from the run that holds it", bound(runStateUnlock))
	unlock.Flags().BoolVar(&o.Force, "force", false, "do it; without, what it risks is said")
	return in.parent("state", groupConfig, "the state of the cluster in the store that STATE names", list, show, pull, push,
		rekey, unlock)
}

// errNoStore is about a command that needs STATE.
var errNoStore = usage.Errorf("STATE is not configured: name the store, as STATE=s3://bucket/prefix, k8s://namespace or " +
	"file:///folder")

// storedState is what a command of state works with.
type storedState struct {
	remotestate.Place
	folder statedir.Dir
	wait   time.Duration // for another run to give the lease back
}

// openStore opens the store of the configured cluster's state. The folder is not touched.
func openStore(ctx context.Context, c *console, a arguments) (s storedState, err error) {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return s, err
	}
	if s.folder, err = c.cluster(a, cfg).LocalState(ctx); err != nil {
		return s, err
	}
	s.wait = cfg.StateWait.D()
	var ok bool
	if s.Place, ok, err = c.cluster(a, cfg).Place(s.folder); err == nil && !ok {
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

func runStateList(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if cfg.State == "" {
		return errNoStore
	}
	access := remotestate.Access{Config: cfg.Config, Environment: c.environment, WorkDir: c.workDir, Hide: c.hide}
	store, err := access.Store()
	if err != nil {
		return err
	}
	found, err := remotestate.List(ctx, store)
	if err != nil {
		return fmt.Errorf("list the states in %s: %w", store, err)
	}
	all := []listedState{}
	for _, is := range found {
		one, err := listState(ctx, access, store, is[0], is[1])
		if err != nil {
			return err
		}
		if one != nil {
			all = append(all, *one)
		}
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, all)
	}
	var rows [][]string
	for _, d := range all {
		holder := "-"
		if d.Holder != nil {
			holder = d.Holder.String()
		}
		rows = append(rows, []string{d.Cluster, d.Environment, strconv.FormatInt(d.Serial, 10), d.WrittenAt(), holder,
			d.Authentic})
	}
	text.Table(c.stdout, c.width(), []string{"CLUSTER", "ENVIRONMENT", "SERIAL", "WRITTEN", "HELD BY", "AUTHENTIC"}, rows...)
	return nil
}

// listedState is a state as `state list` shows it.
type listedState struct {
	remotestate.Document
	Authentic string `json:"authentic"` // "yes", "no", or "not checked": without a key of its cluster
}

// listState reads one of the states of a store; nil: it is gone.
func listState(ctx context.Context, access remotestate.Access, store objectstore.Store, environment,
	cluster string) (*listedState, error) {
	of, keyErr := access.Keys(keys.Scope{Environment: environment, Cluster: cluster})
	d, ok, refused, err := remotestate.Place{Store: store, Environment: environment, Cluster: cluster, Keys: of}.Listed(ctx)
	if err != nil || !ok {
		return nil, err
	}
	d.Sealed, d.Authentication = nil, nil
	one := &listedState{Document: d, Authentic: "yes"}
	switch {
	case keyErr != nil:
		one.Authentic = "not checked"
	case refused != nil:
		one.Authentic = "no"
	}
	return one, nil
}

// shownState is what `state show --output json` prints.
type shownState struct {
	Store    string               `json:"store"`
	Folder   string               `json:"folder"`
	Relation remotestate.Relation `json:"folderIs"`
	remotestate.Document
	Versions []int64 `json:"versions"`
}

func runStateShow(ctx context.Context, c *console, a arguments) error {
	s, err := openStore(ctx, c, a)
	if err != nil {
		return err
	}
	d, ok, refused, err := s.refusable(ctx)
	if err != nil {
		return fmt.Errorf("read the state of cluster %s: %w", s.Cluster, err)
	}
	if !ok && refused == nil {
		return fmt.Errorf("%s has no state of cluster %s (%s): a run writes it, and %s", s.Store, s.Cluster, s.Environment,
			commandLine(c, "state", "push"))
	}
	shown := shownState{Store: s.Store.String(), Folder: string(s.folder), Document: d}
	if shown.Versions, err = s.Versions(ctx); err != nil {
		return fmt.Errorf("list the versions of the state: %w", err)
	}
	if refused != nil {
		if a.Options.Output == "json" {
			return refused
		}
		fmt.Fprintf(c.stdout, "versions of the state of cluster %s in %s: %v\n", s.Cluster, s.Store, shown.Versions)
		return refused
	}
	if shown.Relation, err = s.Compare(d); err != nil {
		return err
	}
	shown.Sealed, shown.Authentication = nil, nil
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, shown)
	}
	held := "no run"
	if d.Holder != nil {
		held = fmt.Sprintf("%s; last sign %s", d.Holder, d.Holder.Renewed.UTC().Format(time.RFC3339))
	}
	text.Table(c.stdout, c.width(), []string{"STATE OF", fmt.Sprintf("%s (%s)", d.Cluster, d.Environment)},
		[]string{"store", shown.Store},
		[]string{"serial", strconv.FormatInt(d.Serial, 10)},
		[]string{"written", d.WrittenAt() + " by " + text.Dash(d.By)},
		[]string{"held by", held},
		[]string{"versions", fmt.Sprint(shown.Versions)},
		[]string{"state folder", shown.Folder + " " + folderIs(shown.Relation)})
	return nil
}

// refusable reads what is stored, and why it is refused.
func (s storedState) refusable(ctx context.Context) (d remotestate.Document, ok bool, refused, err error) {
	d, _, ok, err = s.Document(ctx)
	if is := (*remotestate.RefusedError)(nil); errors.As(err, &is) {
		return d, false, err, nil
	}
	return d, ok, nil, err
}

// folderIs says how a state folder is related to the store, after the folder's name.
func folderIs(r remotestate.Relation) string {
	switch r {
	case remotestate.Same:
		return "has the same state"
	case remotestate.Behind:
		return "has an older state"
	case remotestate.Ahead:
		return "has changes that the store has not"
	case remotestate.Overtaken:
		return "has changes of a run after which another one has worked"
	default:
		return "has changes, and the store has others"
	}
}

func runStatePull(ctx context.Context, c *console, a arguments, o stateOptions) error {
	s, err := openStore(ctx, c, a)
	if err != nil {
		return err
	}
	var serial int64
	if o.Version != "" {
		if serial, err = strconv.ParseInt(o.Version, 10, 64); err != nil || serial < 1 {
			return usage.Errorf("--version %q is no serial: state show lists them", o.Version)
		}
	}
	return s.locked(ctx, func() error {
		d, relation, err := s.pull(ctx, serial, o.Force)
		if err != nil {
			return err
		}
		if relation == remotestate.Ahead {
			fmt.Fprintf(c.stdout, "nothing was changed: %s has changes that %s has not\n", s.folder, s.Store)
			return nil
		}
		fmt.Fprintf(c.stdout, "%s has the state of serial %d, written %s by %s\n", s.folder, d.Serial, d.WrittenAt(), d.By)
		if relation == remotestate.Diverged {
			fmt.Fprintf(c.stdout, "what %s has is refused; to write this state in its place: %s\n", s.Store,
				commandLine(c, "state", "push", "--force"))
			return nil
		}
		if serial > 0 {
			fmt.Fprintf(c.stdout, "the next run writes it as the newest; to write it now: %s\n",
				commandLine(c, "state", "push"))
		}
		return nil
	})
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

func runStatePush(ctx context.Context, c *console, a arguments, o stateOptions) error {
	s, err := openStore(ctx, c, a)
	if err != nil {
		return err
	}
	return s.locked(ctx, func() error {
		d, err := s.Push(ctx, s.wait, o.Force, func(format string, args ...any) { tell(c, format, args...) })
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s has the state of %s, as serial %d\n", s.Store, s.folder, d.Serial)
		return nil
	})
}

func runStateRekey(ctx context.Context, c *console, a arguments, o stateOptions) error {
	s, err := openStore(ctx, c, a)
	if err != nil {
		return err
	}
	d, versions, err := s.Rekey(ctx, s.wait, o.Accept, func(format string, args ...any) { tell(c, format, args...) })
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "the state of cluster %s in %s (serial %d) and %d versions are written anew, with the first key\n",
		s.Cluster, s.Store, d.Serial, versions)
	return nil
}

func runStateUnlock(ctx context.Context, c *console, a arguments, o stateOptions) error {
	s, err := openStore(ctx, c, a)
	if err != nil {
		return err
	}
	if !o.Force {
		d, _, _, err := s.Document(ctx)
		if err != nil {
			return fmt.Errorf("read the state of cluster %s: %w", s.Cluster, err)
		}
		if d.Holder == nil {
			fmt.Fprintf(c.stdout, "no run holds the state of cluster %s\n", s.Cluster)
			return nil
		}
		return usage.Errorf("the state of cluster %s is held by %s, whose last sign was at %s. A run that still works stops at "+
			"its next write; until then it and the next run both change the cluster. One that has ended loses its lease by itself, "+
			"%s after its last sign. To take it away now: %s", s.Cluster, d.Holder, d.Holder.Renewed.UTC().Format(time.RFC3339),
			d.Holder.Lease, commandLine(c, "state", "unlock", "--force"))
	}
	was, err := s.Unlock(ctx)
	switch {
	case err != nil:
		return err
	case was == nil:
		fmt.Fprintf(c.stdout, "no run holds the state of cluster %s\n", s.Cluster)
	default:
		fmt.Fprintf(c.stdout, "the state of cluster %s was held by %s, and is free now\n", s.Cluster, was)
	}
	return nil
}
