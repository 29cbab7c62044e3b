package caph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/lab/caph/api"
)

// release is a release of the original, and what it does that v1.0.7 does not. Each behaviour is named with the first
// release that has it.
type release struct {
	version string
	// failsLost (v1.0.8): a server that had a provider ID and does not exist any more makes its HCloudMachine fail.
	// v1.0.7 creates another one for the same HCloudMachine.
	failsLost bool
	// ignoresLimitWhenReady (v1.0.8): a rate limit met while looking for the server of a machine that is ready is not
	// recorded, and the machine is left as it is.
	ignoresLimitWhenReady bool
	// onlyChanges (v1.0.8): neither a resync nor a changed condition of the HetznerCluster triggers a pass over a machine.
	// All releases do so; the stand-in of v1.0.7 does a pass for either.
	onlyChanges bool
	// skipsNamespaces (v1.0.9): objects in a namespace with the annotation api.SkipNamespace are left alone.
	skipsNamespaces bool
	// stopsUnauthorized (v1.0.11): a machine's pass that ends with a refused token is not repeated.
	stopsUnauthorized bool
	// stopsIrrecoverable (v1.0.12): a server that cannot be created for want of stock, or because of an order that the API
	// refuses, is not ordered again.
	stopsIrrecoverable bool
	// deletesKnown (v1.0.12): a deleted machine without a provider ID has no server; none is looked for by its labels.
	deletesKnown bool
	// needsV1Beta2 (v1.1.0): the manager ends where Cluster API does not serve its objects as v1beta2.
	needsV1Beta2 bool
	// bootStates (v1.1.0): a machine's status has the state of its boot, and its condition ServerProvisioned.
	bootStates bool
	// newerConditions (v1.1.0): the conditions are in status.v1beta2, too.
	newerConditions bool
	// remediatesLost (v1.1.0): the Machine of a server that does not exist any more is marked for remediation, in place
	// of a failure in its HCloudMachine's status.
	remediatesLost bool
	// adopts (v1.1.8): a server whose name is taken when it is created is taken over.
	adopts bool
	// writesCCMSecret (v1.1.8): the workload cluster gets the Secret "hcloud" that hcloud-cloud-controller-manager reads,
	// besides the one with the name of the Hetzner secret.
	writesCCMSecret bool
}

// releaseOf is the release of a version; an empty one is the oldest.
func releaseOf(version string) (release, error) {
	known := api.Versions()
	if version == "" {
		version = known[0]
	}
	v, err := semver.ParseTolerant(version)
	if err != nil {
		return release{}, fmt.Errorf("%q is no version: %w", version, err)
	}
	if !followed(v) {
		return release{}, fmt.Errorf("the stand-in has the behaviour of CAPH %s, and of later patch releases of these, not "+
			"that of %s", strings.Join(known, ", "), version)
	}
	since := func(patch uint64) bool { return v.Minor > 0 || v.Patch >= patch }
	newer := v.Minor > 0
	return release{
		version:   version,
		failsLost: since(8), ignoresLimitWhenReady: since(8), onlyChanges: since(8),
		skipsNamespaces: since(9), stopsUnauthorized: since(11), stopsIrrecoverable: since(12), deletesKnown: since(12),
		needsV1Beta2: newer, bootStates: newer, newerConditions: newer, remediatesLost: newer,
		adopts: newer, writesCCMSecret: newer,
	}, nil
}

// followed says whether a version is one of those that the stand-in follows, or a later patch release of one.
func followed(v semver.Version) bool {
	return slices.ContainsFunc(api.Versions(), func(known string) bool {
		from := semver.MustParse(strings.TrimPrefix(known, "v"))
		return v.Major == from.Major && v.Minor == from.Minor && v.GE(from)
	})
}
