package test

import "testing"

// TestUpgradeBeforeThePivot upgrades a cluster of one server that a management cluster manages from the guide's version
// set to 2026-11, killed in every stage, and has it manage itself afterwards. It is a part of make crash-upgrade.
func TestUpgradeBeforeThePivot(t *testing.T) {
	u := ofGuide(t, "bootstrap")
	u.fromGuide(1, guideMoments(false))
	u.again() // all, which pivots
	providersAre(t, u.command, newerProviders)
}
