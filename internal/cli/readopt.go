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
	"github.com/slipway-k8s/slipway/internal/operation/recovery/readopt"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// readoptPlan is what a readoption finds and would do, in `--output json`.
type readoptPlan struct {
	Kind string `json:"kind"` // "readopt-plan", to tell it from events
	readopt.Readoption
}

// runReadopt gives a cluster whose servers live the management back that it lost. accept are IDs of differences.
func runReadopt(ctx context.Context, c *call, k session.Cluster, accept []string) error {
	b, err := c.openBackup(ctx, k, c.word(1), false)
	if err != nil {
		return err
	}
	k = b.cluster
	if _, err := readopt.New(k.Cfg.Config, session.OfflineTools(k.Cfg), b.Source, accept); err != nil {
		return &usage.Error{Err: err}
	}
	o := operations.ReadoptOptions{Source: b.Source, Accept: accept,
		Show: func(found readopt.Readoption) error { return showReadoption(c, found) }}
	if c.DryRun {
		return operations.PlanReadopt(ctx, k, o, func() *session.Hub { return c.hub("readopt") })
	}
	if err := c.refuseUnasked("readopt asks before it changes anything", "--dry-run only compares"); err != nil {
		return err
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		plan, result, err := operations.Readopt(ctx, s, o, c.questions(s))
		if err != nil {
			return err
		}
		made := operations.Outputs{
			Cluster: plan.Cluster, Kubeconfig: plan.Kubeconfig, Talosconfig: plan.Talosconfig, Nodes: plan.Nodes,
			Access: plan.Access,
		}
		if plan.Access == nil { // else the cluster manages itself
			made.Management = plan.Management
		}
		return conclude(ctx, c, s, result, made)
	})
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
func showReadoption(c *call, found readopt.Readoption) error {
	switch {
	case found.Released:
	case c.Output == "json":
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

func newReadoptCommand(c *call) *cobra.Command {
	var accept string
	cmd := c.command("readopt FILE", groupRecovery,
		"recreate the Cluster API objects of a running cluster from a backup, after comparing the two",
		withCluster(func(ctx context.Context, c *call, k session.Cluster) error {
			return runReadopt(ctx, c, k, accepted(accept))
		}))
	addAcceptFlags(cmd, &c.arguments)
	addDryRunFlag(cmd, &c.arguments, "only say what differs")
	cmd.Flags().StringVar(&accept, "accept", "",
		"accept the differences `ID[,ID…]` between backup and cluster, as the list of them names them")
	return cmd
}
