package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/cluster/records"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// readoptPlan is what a readoption finds and would do, in `--output json`.
type readoptPlan struct {
	Kind string `json:"kind"` // "readopt-plan", to tell it from events
	readopt.Readoption
}

// runReadopt gives a cluster whose servers live the management back that it lost.
func runReadopt(ctx context.Context, c *console, a arguments, o readoptOptions) error {
	b, err := openBackup(ctx, c, withIdentity(a), a.Targets[1], false)
	if err != nil {
		return err
	}
	accept := accepted(o.Accept)
	if _, err := readopt.New(b.cfg.Config, session.OfflineTools(b.cfg), b.Source, accept); err != nil {
		return &usage.Error{Err: err}
	}
	if a.Options.DryRun {
		return predictReadopt(ctx, c, b.arguments, b.cfg, b.Source, accept)
	}
	if !a.Options.Yes && !canPrompt(c) {
		return usage.Errorf("readopt asks before it changes anything, and the standard input is no terminal: --yes answers " +
			"beforehand, --dry-run only compares")
	}
	return operate(ctx, c, b.arguments, func(ctx context.Context, r *running) error {
		plan, result, err := operations.Readopt(ctx, r.Session, operations.ReadoptOptions{Source: b.Source, Accept: accept,
			Show: func(found readopt.Readoption) error { return showReadoption(c, a.Options, found) }}, r.questions())
		if err != nil {
			return err
		}
		made := outputs{
			cluster: plan.Cluster, kubeconfig: plan.Kubeconfig, talosconfig: plan.Talosconfig, nodes: plan.Nodes,
			access: plan.Access,
		}
		if plan.Access == nil { // else the cluster manages itself
			made.management = plan.Management
		}
		return conclude(ctx, r, result, made)
	})
}

// predictReadopt compares, and prints what a readoption would do. It changes
// nothing.
func predictReadopt(ctx context.Context, c *console, a arguments, cfg settings.Configuration, source backup.Cluster,
	accept []string) error {
	at, err := c.cluster(a, cfg).InspectForPlan(ctx)
	if err != nil {
		return err
	}
	if err := records.RoomForReadopt(at.Folder.Files(), source); err != nil {
		return err
	}
	if at.Offline != "" {
		return usage.Errorf("%s: there is nothing to compare the backup with", at.Offline)
	}
	plan, err := readopt.New(at.Cfg.Config, at.Tools, source, accept)
	if err != nil {
		return &usage.Error{Err: err}
	}
	h := &session.Hub{Run: "readopt", Hide: c.hide, Displays: []session.Display{newDisplay(c, a.Options)}}
	defer h.Close()
	found, err := operations.LookForReadopt(ctx, h, plan)
	if err != nil {
		return err
	}
	if err := showReadoption(c, a.Options, found); err != nil {
		return err
	}
	return found.Refuse(accept)
}

// accepted are the words of --accept.
func accepted(list string) (ids []string) {
	for id := range strings.SplitSeq(list, ",") {
		if id = strings.TrimSpace(id); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// showReadoption shows what was found; differences that are refused are in the error instead.
func showReadoption(c *console, o options, found readopt.Readoption) error {
	switch {
	case found.Released:
	case o.Output == "json":
		return ui.PrintJSONLine(c.stdout, readoptPlan{"readopt-plan", found})
	case len(found.Open) == 0:
		printReadoption(c.stdout, found)
	}
	return nil
}

// printReadoption says what will be done.
func printReadoption(w io.Writer, found readopt.Readoption) {
	d := found.Comparison
	fmt.Fprintf(w, "\nCluster %s exists and no cluster manages it. %d objects of the backup of %s go back to %s, paused;\n"+
		"then they are compared once more, and the controllers reconcile again. %d servers are managed again; none of them is "+
		"touched.\n",
		found.Cluster, found.PutBack, found.Taken.Format(time.RFC3339), found.Manager, len(d.Servers))
	if d.Made > 0 {
		fmt.Fprintf(w, "The control plane will create %d new servers to reach its replica count.\n", d.Made)
	}
	for _, m := range found.Differences {
		fmt.Fprintf(w, "accepted %s: %s\n  %s\n", m.ID, m.What, m.Accept)
	}
	for _, note := range found.Notes {
		fmt.Fprintf(w, "note: %s\n", note)
	}
	fmt.Fprintln(w)
}

// readoptOptions are the flags of readopt.
type readoptOptions struct {
	Accept string // IDs of differences, with commas between
}

func newReadoptCommand(in *invocation) *cobra.Command {
	var own readoptOptions
	cmd := in.command("readopt FILE", groupRecovery,
		"recreate the Cluster API objects of a running cluster from a backup, after comparing the two",
		func(ctx context.Context, c *console, a arguments) error {
			return runReadopt(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addAcceptFlags(cmd, o)
	addDryRunFlag(cmd, o, "only say what differs")
	cmd.Flags().StringVar(&own.Accept, "accept", "",
		"accept the differences `ID[,ID…]` between backup and cluster, as the list of them names them")
	return cmd
}
