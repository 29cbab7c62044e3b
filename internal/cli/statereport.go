package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/remotestate"
)

// printStates prints the states of a store.
func printStates(c *console, all []operations.ListedState, output string) error {
	if output == "json" {
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
	head := []string{"CLUSTER", "ENVIRONMENT", "SERIAL", "WRITTEN", "HELD BY", "AUTHENTIC"}
	text.Table(c.stdout, c.width(), head, rows...)
	return nil
}

// printState prints the state of a cluster in the store; of one that is refused the versions alone.
func printState(c *console, cluster string, shown operations.ShownState, output string) error {
	if shown.Refused != nil {
		if output == "json" {
			return shown.Refused
		}
		fmt.Fprintf(c.stdout, "versions of the state of cluster %s in %s: %v\n", cluster, shown.Store, shown.Versions)
		return shown.Refused
	}
	if output == "json" {
		return ui.PrintJSON(c.stdout, shown)
	}
	held := "no run"
	if shown.Holder != nil {
		held = fmt.Sprintf("%s; last sign %s", shown.Holder, shown.Holder.Renewed.UTC().Format(time.RFC3339))
	}
	text.Table(c.stdout, c.width(), []string{"STATE OF", fmt.Sprintf("%s (%s)", shown.Cluster, shown.Environment)},
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
