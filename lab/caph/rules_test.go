package caph

import (
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/lab/standin/standintest"
)

// TestManifestGrants compares the permissions in the lab's manifest with those that the stand-in needs.
func TestManifestGrants(t *testing.T) {
	manifest := filepath.Join("..", "repository", "caph", "manager.yaml")
	standintest.Covers(t, standintest.Granted(t, manifest, "ClusterRole"), Rules())
	standintest.Covers(t, standintest.Granted(t, manifest, "Role"), LeaderElectionRules())
}
