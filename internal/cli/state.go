package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
)

// stateOptions are the flags of state and of what is below it.
type stateOptions struct {
	Force   bool
	Version string // serial; empty: the newest
	Accept  bool   // what is not authenticated
}

func newStateCommand(c *call) *cobra.Command {
	var o stateOptions
	bound := func(do func(context.Context, *call, session.Cluster, stateOptions) error) action {
		return withCluster(func(ctx context.Context, c *call, k session.Cluster) error { return do(ctx, c, k, o) })
	}
	list := c.command("list", "", "list the clusters that the store has states of", withCluster(runStateList))
	show := c.command("show", "", "show the state of the cluster: who holds it, its versions, how the state folder differs",
		withCluster(runStateShow))
	pull := c.command("pull", "", "bring the state folder up to date with the store", bound(runStatePull))
	pull.Flags().BoolVar(&o.Force, "force", false, "set aside what the state folder has changed without the store")
	pull.Flags().StringVar(&o.Version, "version", "", "take an older version, by its `SERIAL`; state show lists them")
	push := c.command("push", "", "write the state folder's state into the store", bound(runStatePush))
	push.Flags().BoolVar(&o.Force, "force", false, "replace what the store has, also what is refused")
	rekey := c.command("rekey", "", "write the state and its versions anew with the keys of now", bound(runStateRekey))
	rekey.Flags().BoolVar(&o.Accept, "accept-unauthenticated", false, "take what an older release wrote as it is")
	unlock := c.command("unlock", "", "take the state away from the run that holds it", bound(runStateUnlock))
	unlock.Flags().BoolVar(&o.Force, "force", false, "do it; without, what it risks is said")
	return c.parent("state", groupConfig, "the state of the cluster in the store that STATE names", list, show, pull, push,
		rekey, unlock)
}

func runStateList(ctx context.Context, c *call, k session.Cluster) error {
	all, err := operations.ListStates(ctx, k)
	if err != nil {
		return err
	}
	return c.print(all, func(out io.Writer, width int) error {
		var rows [][]string
		for _, d := range all {
			holder := "-"
			if d.Holder != nil {
				holder = d.Holder.String()
			}
			rows = append(rows, []string{d.Cluster, d.Environment, strconv.FormatInt(d.Serial, 10), d.WrittenAt(), holder,
				d.Authentic})
		}
		text.Table(out, width, []string{"CLUSTER", "ENVIRONMENT", "SERIAL", "WRITTEN", "HELD BY", "AUTHENTIC"}, rows...)
		return nil
	})
}

func runStatePull(ctx context.Context, c *call, k session.Cluster, o stateOptions) error {
	var serial int64
	if o.Version != "" {
		var err error
		if serial, err = strconv.ParseInt(o.Version, 10, 64); err != nil || serial < 1 {
			return usage.Errorf("--version %q is no serial: state show lists them", o.Version)
		}
	}
	r, err := operations.PullState(ctx, k, serial, o.Force)
	switch {
	case r.Serial == 0:
		return err
	case r.Relation == remotestate.Ahead:
		fmt.Fprintf(c.stdout, "nothing was changed: %s has changes that %s has not\n", r.Folder, r.Store)
		return err
	}
	fmt.Fprintf(c.stdout, "%s has the state of serial %d, written %s by %s\n", r.Folder, r.Serial, r.WrittenAt(), r.By)
	switch {
	case r.Relation == remotestate.Diverged:
		fmt.Fprintf(c.stdout, "what %s has is refused; to write this state in its place: %s\n", r.Store,
			commandLine(c, "state", "push", "--force"))
	case serial > 0:
		fmt.Fprintf(c.stdout, "the next run writes it as the newest; to write it now: %s\n",
			commandLine(c, "state", "push"))
	}
	return err
}

func runStatePush(ctx context.Context, c *call, k session.Cluster, o stateOptions) error {
	r, err := operations.PushState(ctx, k, o.Force)
	if r.Serial > 0 {
		fmt.Fprintf(c.stdout, "%s has the state of %s, as serial %d\n", r.Store, r.Folder, r.Serial)
	}
	return err
}

func runStateRekey(ctx context.Context, c *call, k session.Cluster, o stateOptions) error {
	r, err := operations.RekeyState(ctx, k, o.Accept)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "the state of cluster %s in %s (serial %d) and %d versions are written anew, with the first key\n",
		k.Cfg.ClusterName, r.Store, r.Serial, r.Versions)
	return nil
}

func runStateUnlock(ctx context.Context, c *call, k session.Cluster, o stateOptions) error {
	was, err := operations.UnlockState(ctx, k, o.Force)
	switch {
	case err != nil:
		return err
	case was == nil:
		fmt.Fprintf(c.stdout, "no run holds the state of cluster %s\n", k.Cfg.ClusterName)
	default:
		fmt.Fprintf(c.stdout, "the state of cluster %s was held by %s, and is free now\n", k.Cfg.ClusterName, was)
	}
	return nil
}
