package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// rehearsalOptions are the flags of a command that can be rehearsed on a copy of the cluster.
type rehearsalOptions struct {
	Rehearse string // backup
	KeepLab  bool
}

func (o *rehearsalOptions) addFlags(cmd *cobra.Command, does string) {
	cmd.Flags().StringVar(&o.Rehearse, "rehearse", "",
		"restore the backup `FILE` into a lab of its own, and "+does+" there")
	cmd.Flags().BoolVar(&o.KeepLab, "keep-lab", false, "with --rehearse: leave the lab up at the end")
}

// check refuses what goes with a rehearsal alone.
func (o *rehearsalOptions) check() error {
	if o.KeepLab && o.Rehearse == "" {
		return usage.Errorf("--keep-lab goes with --rehearse: nothing else has a lab of its own")
	}
	return nil
}

// rehearseUpgrade rehearses an upgrade to the versions of the configuration, which has the values of a version set.
func rehearseUpgrade(ctx context.Context, c *call, set []settings.Assignment, o upgradeOptions) error {
	return rehearse(ctx, c, set, o.rehearsalOptions, upgradeName,
		drill.Upgrade(operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter, InPlace: o.InPlace,
			Again: []string{upgradeName}}))
}

// rehearse restores a backup into a lab of its own, with the versions of the backup, changes the cluster there, and
// compares it with the backup.
func rehearse(ctx context.Context, c *call, set []settings.Assignment, o rehearsalOptions, name string,
	change drill.Change) error {
	k, options, err := openDrill(ctx, c, withoutVersions(c.Values), o.Rehearse, drill.RehearsalFolder)
	if err != nil {
		return err
	}
	options.KeepLab = o.KeepLab
	changed := *c
	changed.Base = k.Base
	to, err := changed.load(set...)
	if err != nil {
		return err
	}
	report, err := drill.Rehearse(ctx, k, to.Cfg, options, name, change)
	if err != nil {
		return err
	}
	if err := c.printLine(report, func(out io.Writer, _ int) error { return printRehearsal(out, report) }); err != nil {
		return err
	}
	if !report.Passed {
		return errors.New("the rehearsal failed: the changed cluster differs from the backup (DIFFERS in the report)")
	}
	return nil
}
