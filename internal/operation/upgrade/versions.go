package upgrade

import (
	"fmt"
	"slices"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
)

// Versions are those of a cluster, or those that it is upgraded to: variable → version ("TALOS_VERSION" → "v1.12.2").
type Versions map[string]string

// Variables of versions, in the order in which an upgrade changes them.
const (
	talos      = "TALOS_VERSION"
	kubernetes = "KUBERNETES_VERSION"
)

// providerVariables are the versions of Cluster API and its providers.
func providerVariables() []string {
	return []string{"CAPI_VERSION", "CABPT_VERSION", "CACPPT_VERSION", "CAPH_VERSION"}
}

// chartVariables are the versions of the charts, in the order in which they are upgraded, and the step of each.
func chartVariables() []chartVariable {
	return []chartVariable{{"CILIUM_VERSION", "cilium", render.CiliumChart}, {"HCLOUD_CCM_VERSION", "hcloud-ccm",
		render.HCloudCCMChart},
		{"TALOS_CCM_VERSION", "talos-ccm", render.TalosCCMChart}}
}

type chartVariable struct {
	name, step   string
	installation func(config.Config, render.Sources) render.Chart
}

// variables are all of them.
func variables() []string {
	all := append(providerVariables(), talos, kubernetes)
	for _, v := range chartVariables() {
		all = append(all, v.name)
	}
	return all
}

// VersionsOf are the versions of a configuration.
func VersionsOf(cfg config.Config) Versions {
	versions := Versions{}
	for _, v := range config.Variables() {
		if slices.Contains(variables(), v.Name) {
			versions[v.Name] = v.Get(cfg)
		}
	}
	return versions
}

// of says which of these it has: "Kubernetes of the cluster v1.32.2".
func (v Versions) of(these map[string]string) string {
	only := map[string]string{}
	for variable := range these {
		only[variable] = v[variable]
	}
	return sentence(only)
}

// title is what a variable is a version of: "Talos Linux", "Cilium chart".
func title(variable string) string {
	for _, v := range config.Variables() {
		if v.Name == variable {
			return v.Doc
		}
	}
	return variable
}

// Change is one component with the versions that it has and gets.
type Change struct {
	Variable string `json:"variable"`
	From     string `json:"from"`
	To       string `json:"to"`
}

// String is "Talos Linux v1.12.2 → v1.13.9".
func (c Change) String() string { return fmt.Sprintf("%s %s → %s", title(c.Variable), c.From, c.To) }

// change is the difference in one variable; not changed: ok is false. What the cluster does not tell is no change.
func change(from, to Versions, variable string) (c Change, ok bool) {
	c = Change{Variable: variable, From: from[variable], To: to[variable]}
	return c, c.From != "" && c.To != "" && c.From != c.To
}

// compare orders two versions as configured. Those that are no versions are a mistake of the caller: the configuration
// is validated, and what a cluster tells is parsed when it is read.
func compare(a, b string) int { return parsed(a).Compare(parsed(b)) }

func parsed(version string) semver.Version {
	v, _ := semver.ParseTolerant(version)
	return v
}

// lowest is the lowest of several versions; empty ones are left out.
func lowest(versions ...string) (least string) {
	for _, v := range versions {
		if v != "" && (least == "" || compare(v, least) < 0) {
			least = v
		}
	}
	return least
}
