package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
)

// drillOptions are the flags of drill.
type drillOptions struct {
	Backup  string // restore this one; empty: of a cluster that the drill makes
	Faults  uint64 // a seed for faults during the restore; 0: none
	KeepLab bool   // leave its lab up
}

// runDrill rehearses the loss of everything in a lab of its own.
func runDrill(ctx context.Context, c *call, o drillOptions) error {
	k, options, err := openDrill(ctx, c, c.Values, o.Backup, drill.Folder)
	if err != nil {
		return err
	}
	options.Faults, options.KeepLab = o.Faults, o.KeepLab
	report, err := drill.Run(ctx, k, options)
	if err != nil {
		return err
	}
	if err := c.printLine(report, func(out io.Writer, _ int) error { return printDrill(out, report) }); err != nil {
		return err
	}
	if !report.Passed {
		return errors.New("the drill failed: the restored cluster differs from the lost one (DIFFERS in the report)")
	}
	return nil
}

// openDrill is the cluster of a drill, of a configuration with these values: in a lab, whatever it is of, and in a
// state folder of its own. It reads the backup that is rehearsed, if one is named.
func openDrill(ctx context.Context, given *call, values []settings.Assignment, file string,
	folder func(session.Cluster) (statedir.Dir, error)) (k session.Cluster, o drill.Options, err error) {
	c := *given // with the state folder of the drill in the commands that it prints
	own := c
	own.Lab, own.Values = true, values
	if k, err = own.load(c.backupValues()...); err != nil {
		return k, o, err
	}
	state, err := folder(k)
	if err != nil {
		return k, o, err
	}
	c.StateDir = string(state)
	k.StateDir, k.Caller = c.StateDir, c.caller()
	o = drill.Options{
		Displays: c.displays,
		Part: func(report string, number, of int, name, why string) {
			if c.Output == "text" {
				fmt.Fprintf(c.stdout, "\n%s, %d of %d: %s: %s\n", report, number, of, name, why)
			}
		},
	}
	if file == "" {
		return k, o, nil
	}
	b, err := c.openBackup(ctx, k, file, false)
	o.Backup = &b.OpenedBackup
	return b.cluster, o, err
}

func newDrillCommand(c *call) *cobra.Command {
	var own drillOptions
	cmd := c.command("drill", groupRecovery,
		"rehearse the loss and the restore of a cluster in a separate lab, and report RTO and RPO",
		func(ctx context.Context, c *call) error { return runDrill(ctx, c, own) })
	addAcceptFlags(cmd, &c.arguments)
	cmd.Flags().StringVar(&own.Backup, "backup", "",
		"restore the backup `FILE`, in place of one of a cluster that is created for the drill")
	cmd.Flags().Uint64Var(&own.Faults, "faults", 0,
		"have things go wrong during the restore; the same `SEED` chooses the same")
	cmd.Flags().BoolVar(&own.KeepLab, "keep-lab", false, "leave its lab up, to look around")
	return cmd
}
