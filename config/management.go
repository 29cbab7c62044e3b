package config

import (
	"fmt"
	"slices"
	"strings"
)

// What the management cluster can be.
const (
	ManagementKind     = "kind"     // a kind cluster, in a container engine
	ManagementLocal    = "local"    // processes of this machine
	ManagementExisting = "existing" // the cluster of ManagementKubeconfig, or the one that this process runs in
)

// Values of Config.Pivot.
const (
	PivotTrue  = "true"  // the cluster manages itself
	PivotFalse = "false" // it stays managed from the management cluster
)

var managements = []string{ManagementKind, ManagementLocal, ManagementExisting}

// ManagementProvider is what the management cluster is: Management, or what follows from ManagementKubeconfig.
func (c Config) ManagementProvider() string {
	switch {
	case c.Management != "":
		return c.Management
	case c.ManagementKubeconfig != "":
		return ManagementExisting
	default:
		return ManagementKind
	}
}

// KeepsManager says that the cluster stays managed from its management cluster.
func (c Config) KeepsManager() bool { return c.Pivot == PivotFalse }

func (v *Findings) management(c Config) {
	if !dnsLabel.MatchString(c.Namespace) || len(c.Namespace) > maxNamespace {
		v.add("namespace", c.Namespace, "is not a DNS label", fmt.Sprintf("use at most %d lower case letters, digits and "+
			"dashes, beginning with a letter (RFC 1123)", maxNamespace))
	}
	if c.Pivot != PivotTrue && c.Pivot != PivotFalse {
		v.add("pivot", c.Pivot, "is neither true nor false", "write "+PivotTrue+" or "+PivotFalse)
	}
	if c.KeepsManager() && slices.Contains(c.Addons.names(), AddonAutoscaler) {
		v.addPair("pivot", "addons", c.Pivot, "does not go together with the add-on "+AddonAutoscaler+", which changes the "+
			"MachineDeployments of the cluster that it runs in", "leave one of them out")
	}
	switch {
	case c.Management != "" && !slices.Contains(managements, c.Management):
		v.add("management", c.Management, "is nothing that a management cluster can be", "write "+
			strings.Join(managements, ", "))
	case c.Management != "" && c.Management != ManagementExisting && c.ManagementKubeconfig != "":
		v.add("managementKubeconfig", c.ManagementKubeconfig, "is not used where management is "+c.Management,
			"remove it, or set management to "+ManagementExisting)
	}
	if c.Management == ManagementLocal {
		if _, err := c.Table().ManagedFrom(c.CAPIVersion, c.KubernetesVersion); err != nil {
			v.addPair("kubernetesVersion", "capiVersion", c.KubernetesVersion, "is the version of the local management "+
				"cluster too, which does not go with capiVersion "+c.CAPIVersion+" ("+err.Error()+")", "change one of them, or set "+
				"management to "+ManagementKind)
		}
	}
}
