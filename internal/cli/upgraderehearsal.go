package cli

import (
	"context"
	"errors"

	"github.com/slipway-k8s/slipway/internal/session/drill"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// rehearseUpgrade restores a backup into a lab of its own, upgrades it there, and compares it with the backup. given
// are the arguments as the operator wrote them: the restore takes the versions of the backup.
func rehearseUpgrade(ctx context.Context, c *console, a, given arguments, o upgradeOptions) error {
	d, err := openDrill(ctx, c, withoutVersions(given), o.Rehearse)
	if err != nil {
		return err
	}
	d.options.KeepLab = o.KeepLab
	a.base = d.arguments.base
	to, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	report, err := drill.RehearseUpgrade(ctx, d.cluster(d.arguments, d.cfg), to, d.options,
		operations.UpgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter, InPlace: o.InPlace, Again: []string{"upgrade"}})
	if err != nil {
		return err
	}
	if err := printUpgradeReport(c.stdout, report, a.Options.Output); err != nil {
		return err
	}
	if !report.Passed {
		return errors.New("the rehearsal failed: the upgraded cluster differs from the backup (DIFFERS in the report)")
	}
	return nil
}
