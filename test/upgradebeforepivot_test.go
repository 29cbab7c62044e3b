package test

import (
	"os"
	"testing"
)

// TestUpgradeBeforeThePivot upgrades a cluster that a management cluster manages from the guide's version set to the
// current one, killed in the middle. It is a part of make crash-upgrade.
func TestUpgradeBeforeThePivot(t *testing.T) {
	if os.Getenv(crashVariable) == "" {
		t.Skipf("it runs with %s set: make crash-upgrade", crashVariable)
	}
	c := bootstrapped(t, "bootstrap")
	if out, err := c.exec(t.Context(), "lab", "build", "KUBERNETES_VERSION="+newerKubernetes); err != nil {
		t.Fatalf("lab build: %v\n%s", err, out)
	}
	c.storesState()
	u := &upgrading{t: t, command: c}
	u.kill(event{Step: "talos", Message: "is held until then"})
	u.kill(event{Step: "kubernetes-1-33-13", Message: " of 3 servers"})
	u.finish(0)
	if is := c.onlyVersion(t, 3); is != newerKubernetes {
		t.Errorf("the servers run %s", is)
	}
	u.again()
}
