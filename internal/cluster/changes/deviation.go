package changes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/platform"
)

// Deviation is one value of the configuration, or of the manifests, that is not the one of the cluster that manages
// itself. After the pivot only `apply` and `upgrade` bring such a value to the cluster.
type Deviation struct {
	Variable string `json:"variable,omitempty"` // "KUBERNETES_VERSION"; empty: of the manifests
	Field    string `json:"field,omitempty"`    // of the variable, in bootstrap.yaml: "kubernetesVersion"
	Place    string `json:"place,omitempty"`    // where the configured value comes from: "bootstrap.yaml:3:12", "default"
	Wanted   string `json:"wanted,omitempty"`   // what is configured
	Live     string `json:"live,omitempty"`     // what the cluster has
	What     string `json:"what,omitempty"`     // of the manifests: what applying them would do
	// Requested reports that the configuration was changed since it was last applied: the operator asks for a change of
	// the cluster. Else the cluster was changed, with kubectl for one.
	Requested bool   `json:"requested"`
	Change    string `json:"change"` // how the cluster gets the configured value
	Keep      string `json:"keep"`   // how the configuration gets the cluster's
}

// String is the deviation in one line, with what can be done about it.
func (d Deviation) String() string {
	return fmt.Sprintf("%s; to change the cluster: %s; to keep it: %s", d.Summary(), d.Change, d.Keep)
}

// Summary is the deviation without what can be done about it.
func (d Deviation) Summary() string {
	if d.Variable == "" {
		return fmt.Sprintf("the manifests (%s) differ from the cluster: applying them %s", d.Place, d.What)
	}
	return fmt.Sprintf("%s is %s (%s), and the cluster has %s", d.Variable, OrNone(d.Wanted), d.Place,
		OrNone(d.Live))
}

// RequestedDeviations are the deviations that ask for a change of the cluster.
func RequestedDeviations(all []Deviation) []Deviation {
	return slices.DeleteFunc(slices.Clone(all), func(d Deviation) bool { return !d.Requested })
}

// versionVariables are those whose values an upgrade brings to a cluster.
func versionVariables() []string {
	return []string{"TALOS_VERSION", "KUBERNETES_VERSION", "CAPI_VERSION", "CABPT_VERSION", "CACPPT_VERSION",
		"CAPH_VERSION"}
}

// Possible tells whether the cluster can get the configured value.
func (d Deviation) Possible() bool {
	return !slices.Contains(ImmutableVariables(), d.Variable) &&
		!(slices.Contains(versionVariables(), d.Variable) && older(d.Wanted, d.Live))
}

// change is how the cluster gets the configured value.
func (d Deviation) change(tools platform.Tools) string {
	version := slices.Contains(versionVariables(), d.Variable)
	switch {
	case version && !d.Possible():
		return "it cannot: an upgrade brings no older version"
	case version:
		return tools.Command("upgrade")
	case d.Variable == ReplicasVariable:
		return tools.Command("scale", "control-plane", d.Wanted)
	case !d.Possible():
		return "it cannot be changed in a cluster that exists; another cluster (CLUSTER_NAME) can have it"
	case d.Requested:
		return tools.Command("apply")
	}
	return "edit the object with kubectl, as it was edited"
}

// ImmutableVariables are those whose values a cluster that exists keeps.
func ImmutableVariables() []string {
	return []string{"LOCATION", "NETWORK_CIDR", "CONTROL_PLANE_CIDR", "POD_CIDR", "SERVICE_CIDR"}
}

// older compares two versions; one that cannot be read is not.
func older(a, b string) bool {
	va, errA := semver.ParseTolerant(a)
	vb, errB := semver.ParseTolerant(b)
	return errA == nil && errB == nil && va.LT(vb)
}

// keep is how the configuration gets the cluster's value.
func (d Deviation) keep() string {
	if strings.HasPrefix(d.Place, "argument") || strings.HasPrefix(d.Place, "environment") {
		return fmt.Sprintf("leave %s out, with %s in bootstrap.yaml", d.Variable, d.line())
	}
	return d.line() + " in bootstrap.yaml"
}

func (d Deviation) line() string {
	if d.Live == "" {
		return d.Field + `: ""`
	}
	return d.Field + ": " + d.Live
}
