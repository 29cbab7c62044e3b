package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
)

// runStateShow prints the state of a cluster in the store; of one that is refused the versions alone.
func runStateShow(ctx context.Context, c *call, k session.Cluster) error {
	shown, err := operations.ShowState(ctx, k)
	switch {
	case err != nil:
		return err
	case shown.Refused == nil:
		return c.print(shown, func(out io.Writer, width int) error { return printState(out, width, shown) })
	case c.Output != "json":
		_ = c.say("versions of the state of cluster %s in %s: %v", k.Cfg.ClusterName, shown.Store, shown.Versions)
	}
	return shown.Refused
}

func printState(out io.Writer, width int, shown operations.ShownState) error {
	held := "no run"
	if shown.Holder != nil {
		held = fmt.Sprintf("%s; last sign %s", shown.Holder, shown.Holder.Renewed.UTC().Format(time.RFC3339))
	}
	text.Table(out, width, []string{"STATE OF", fmt.Sprintf("%s (%s)", shown.Cluster, shown.Environment)},
		[]string{"store", shown.Store},
		[]string{"serial", strconv.FormatInt(shown.Serial, 10)},
		[]string{"written", shown.WrittenAt() + " by " + text.Dash(shown.By)},
		[]string{"held by", held},
		[]string{"versions", fmt.Sprint(shown.Versions)},
		[]string{"state folder", shown.Folder + " " + folderIs(shown.Relation)})
	return nil
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
