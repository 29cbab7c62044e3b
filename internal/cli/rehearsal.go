package cli

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session"
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

// check refuses flags that do not go together.
func (o *rehearsalOptions) check(c *call) error {
	switch {
	case o.KeepLab && o.Rehearse == "":
		return usage.Errorf("--keep-lab goes with --rehearse: nothing else has a lab of its own")
	case c.DryRun && o.Rehearse != "":
		return usage.Errorf("--dry-run does not go with --rehearse, which changes a copy of the cluster")
	}
	return nil
}

// rehearseUpgrade rehearses an upgrade to the versions of the configuration, which has the values of a version set.
func rehearseUpgrade(ctx context.Context, c *call, set []settings.Assignment, o upgradeOptions) error {
	k, options, err := openDrill(ctx, c, withoutVersions(c.Values), o.Rehearse, drill.RehearsalFolder)
	if err != nil {
		return err
	}
	upgraded := *c
	upgraded.Base = k.Base
	to, err := upgraded.load(set...)
	if err != nil {
		return err
	}
	return o.run(ctx, c, k, options, to, upgradeName, drill.Upgrade(operations.UpgradeOptions{Via: o.Via,
		PauseAfter: o.PauseAfter, InPlace: o.InPlace, Again: []string{upgradeName}}))
}

// rehearseApply rehearses what apply does to the cluster, with the configuration that apply has.
func rehearseApply(ctx context.Context, c *call, o rehearsalOptions) error {
	to, err := c.load()
	if err != nil {
		return err
	}
	if err := to.Validate(ctx, commands()...); err != nil {
		return err
	}
	state, err := to.State(ctx)
	if err != nil {
		return err
	}
	k, options, err := openDrill(ctx, c, withoutVersions(c.Values), o.Rehearse, drill.RehearsalFolder)
	if err != nil {
		return err
	}
	if is, of := to.Cfg.ClusterName, k.Cfg.ClusterName; is != of {
		return usage.Errorf("the backup is of cluster %s, and the configuration of cluster %s", of, is)
	}
	options.State = state
	return o.run(ctx, c, k, options, to, targetApply, drill.Apply(c.Apply))
}

// run restores a backup into a lab of its own, with the versions of the backup, changes the cluster there to what
// another configuration has, and compares it with the backup.
func (o *rehearsalOptions) run(ctx context.Context, c *call, k session.Cluster, options drill.Options,
	to session.Cluster, name string, change drill.Change) error {
	options.KeepLab = o.KeepLab
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
