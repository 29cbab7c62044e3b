package cli

import (
	"context"
	"errors"
	"io"

	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/internal/state/settings"
)

// rehearseUpgrade restores a backup into a lab of its own, with the versions of the backup, upgrades it there to those
// of the configuration, which has the values of a version set, and compares it with the backup.
func rehearseUpgrade(ctx context.Context, c *call, set []settings.Assignment, o upgradeOptions) error {
	k, options, err := openDrill(ctx, c, withoutVersions(c.Values), o.Rehearse)
	if err != nil {
		return err
	}
	options.KeepLab = o.KeepLab
	upgraded := *c
	upgraded.Base = k.Base
	to, err := upgraded.load(set...)
	if err != nil {
		return err
	}
	report, err := drill.RehearseUpgrade(ctx, k, to.Cfg, options,
		operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter, InPlace: o.InPlace, Again: []string{"upgrade"}})
	if err != nil {
		return err
	}
	if err := c.printLine(report, func(out io.Writer, _ int) error { return printUpgradeReport(out, report) }); err != nil {
		return err
	}
	if !report.Passed {
		return errors.New("the rehearsal failed: the upgraded cluster differs from the backup (DIFFERS in the report)")
	}
	return nil
}
