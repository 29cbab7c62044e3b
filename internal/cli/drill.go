package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/drill"
)

// runDrill rehearses the loss of everything in a lab of its own.
func runDrill(ctx context.Context, c *console, a arguments, o drillOptions) error {
	d, err := openDrill(ctx, c, a, o.Backup)
	if err != nil {
		return err
	}
	d.options.Faults, d.options.KeepLab = o.Faults, o.KeepLab
	report, err := drill.Run(ctx, d.cluster(d.arguments, d.cfg), d.options)
	if err != nil {
		return err
	}
	if err := printDrill(c.stdout, report, a.Options.Output); err != nil {
		return err
	}
	if !report.Passed {
		return errors.New("the drill failed: the restored cluster differs from the lost one (DIFFERS in the report)")
	}
	return nil
}

// drillRun is a drill with the arguments and the configuration of its cluster.
type drillRun struct {
	*console // with the state folder of the drill in the commands that it prints
	openedBackup
	options drill.Options
}

// openDrill chooses the state folder of a drill and reads the backup that is rehearsed, if one is named. It goes into a
// lab, whatever it is of.
func openDrill(ctx context.Context, c *console, a arguments, file string) (d drillRun, err error) {
	a = withIdentity(a)
	a.Options.Lab = true
	if d.cfg, err = loadConfig(a, c.environment); err != nil {
		return d, err
	}
	state, err := drill.Folder(c.cluster(a, d.cfg))
	if err != nil {
		return d, err
	}
	a.Options.StateDir = string(state)
	own := *c
	own.given.Options.StateDir = a.Options.StateDir
	d.console, d.arguments = &own, a
	d.options = drill.Options{
		Displays: func() []session.Display { return []session.Display{newDisplay(c, a.Options)} },
		Part: func(report string, number, of int, name, why string) {
			if a.Options.Output == "text" {
				fmt.Fprintf(c.stdout, "\n%s, %d of %d: %s: %s\n", report, number, of, name, why)
			}
		},
	}
	if file == "" {
		return d, nil
	}
	if d.openedBackup, err = openBackup(ctx, d.console, a, file, false); err != nil {
		return d, err
	}
	d.options.Backup = &d.OpenedBackup
	return d, nil
}

// drillOptions are the flags of drill.
type drillOptions struct {
	Backup  string // restore this one; empty: of a cluster that the drill makes
	Faults  uint64 // a seed for faults during the restore; 0: none
	KeepLab bool   // leave its lab up
}

func newDrillCommand(in *invocation) *cobra.Command {
	var own drillOptions
	cmd := in.command("drill", groupRecovery,
		"rehearse the loss and the restore of a cluster in a separate lab, and report RTO and RPO",
		func(ctx context.Context, c *console, a arguments) error {
			return runDrill(ctx, c, a, own)
		})
	o := &in.arguments.Options
	addAcceptFlags(cmd, o)
	cmd.Flags().StringVar(&own.Backup, "backup", "",
		"restore the backup `FILE`, in place of one of a cluster that is created for the drill")
	cmd.Flags().Uint64Var(&own.Faults, "faults", 0,
		"have things go wrong during the restore; the same `SEED` chooses the same")
	cmd.Flags().BoolVar(&own.KeepLab, "keep-lab", false, "leave its lab up, to look around")
	return cmd
}
