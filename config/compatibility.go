package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/blang/semver/v4"
)

// Minors is a range of minor versions of one major, both ends included: of Kubernetes 1.x where nothing else is said.
type Minors struct{ Min, Max uint64 }

// Has reports whether a version is in the range.
func (m Minors) Has(v semver.Version) bool {
	return v.Major == 1 && m.Min <= v.Minor && v.Minor <= m.Max
}

// String is "v1.30 to v1.35".
func (m Minors) String() string { return fmt.Sprintf("v1.%d to v1.%d", m.Min, m.Max) }

// ClusterctlMinor is that of the clusterctl library inside this command, which cannot move objects of another core
// (v1beta2), and of the newest core that CABPT v0.6 and CACPPT v0.5 are built for.
const ClusterctlMinor = 10

// Management and Workload are the Kubernetes that Cluster API v1.10 is managed from, and that it manages: the version
// matrix in its book (docs/book/src/reference/versions.md at v1.10.10).
func Management() Minors { return Minors{29, 36} }

// Workload is the Kubernetes of the clusters that Cluster API v1.10 manages, see Management.
func Workload() Minors { return Minors{27, 36} }

// talosRuns is the Kubernetes that a minor of Talos 1.x runs: siderolabs/talos, pkg/machinery/compatibility at v1.13.0.
func talosRuns() map[uint64]Minors {
	return map[uint64]Minors{7: {25, 30}, 8: {26, 31}, 9: {27, 32}, 10: {28, 33}, 11: {29, 34}, 12: {30, 35},
		13: {31, 36}}
}

// caphTests is what a minor of CAPH 1.x is tested with: Cluster API, and Kubernetes of the clusters
// (docs/caph/01-getting-started/01-introduction.md at v1.1.8). It calls other versions neither good nor bad. The table
// there has CAPI v1.10 for CAPH v1.1 too, which holds for none of its releases: see CAPHMinor.
func caphTests() map[uint64]struct{ capi, kubernetes Minors } {
	return map[uint64]struct{ capi, kubernetes Minors }{0: {capi: Minors{8, 10}, kubernetes: Minors{31, 34}}}
}

// CAPHMinor is the newest minor of CAPH 1.x that works with the core of ClusterctlMinor. CAPH v1.1.0 to v1.1.8 watch
// Cluster API's objects as cluster.x-k8s.io/v1beta2 (imports of main.go and controllers/), which that core does not
// serve: their manager ends with "no matches for kind Cluster in version cluster.x-k8s.io/v1beta2".
const CAPHMinor = 0

// ServedVersion is the only version of their kinds that Cluster API of ClusterctlMinor, in the groups
// cluster.x-k8s.io and addons.cluster.x-k8s.io, and CAPH of CAPHMinor serve: the definitions of both
// (config/crd/bases at v1.10.10, at v1.0.7 and at v1.0.12).
const ServedVersion = "v1beta1"

// ciliumTests is the Kubernetes that a minor of Cilium 1.x is tested with
// (Documentation/network/kubernetes/compatibility.rst at its tags). It calls other versions neither good nor bad.
func ciliumTests() map[uint64]Minors { return map[uint64]Minors{18: {30, 33}} }

// kubernetesSupport is until when a minor of Kubernetes 1.x gets fixes from its project: kubernetes.io/releases and
// kubernetes/website data/releases/eol.yaml, as of September 2026.
func kubernetesSupport() map[uint64]string {
	return map[uint64]string{29: "2025-02-28", 30: "2025-07-15", 31: "2025-11-11", 32: "2026-02-28", 33: "2026-06-28"}
}

// lastPatch is the newest patch release of a minor of Kubernetes 1.x: the final one, by kubernetes/website
// data/releases/eol.yaml, and for the newest minor that Cluster API manages that of the set current.
func lastPatch() map[uint64]string {
	return map[uint64]string{27: "v1.27.16", 28: "v1.28.15", 29: "v1.29.14", 30: "v1.30.14", 31: "v1.31.14",
		32: "v1.32.13", 33: "v1.33.13"}
}

// LastPatch is the newest patch release of a minor of Kubernetes 1.x that this command knows; empty: it knows none.
func LastPatch(minor uint64) string { return lastPatch()[minor] }

// TalosRuns says why a Talos does not run a Kubernetes; nil: it does. Both are versions as configured: "v1.12.2".
func TalosRuns(talos, kubernetes string) error {
	t, err := semver.ParseTolerant(talos)
	if err != nil {
		return fmt.Errorf("Talos %q: %w", talos, err)
	}
	k, err := semver.ParseTolerant(kubernetes)
	if err != nil {
		return fmt.Errorf("Kubernetes %q: %w", kubernetes, err)
	}
	runs, known := talosRuns()[t.Minor]
	switch {
	case t.Major != 1 || !known:
		return fmt.Errorf("Talos %d.%d is not supported by this command", t.Major, t.Minor)
	case k.Major == 1 && k.Minor < runs.Min:
		return fmt.Errorf("it is too old: Talos 1.%d runs %s", t.Minor, runs)
	case !runs.Has(k):
		return fmt.Errorf("it is too new: Talos 1.%d runs %s", t.Minor, runs)
	}
	return nil
}

// Remark is something that is known of configured versions and keeps no cluster from being created.
type Remark struct {
	Variable string `json:"variable"`
	Text     string `json:"text"`
	Take     string `json:"take,omitempty"` // the value to configure in its place; empty: none goes with the others
	// Rollout: while the control plane's servers are replaced or removed, their number may never be reached.
	Rollout bool `json:"rollout,omitempty"`
	// Untested: nothing says that the versions do not go together, and nothing that they do.
	Untested bool `json:"untested,omitempty"`
}

// String is the remark with what to do about it.
func (r Remark) String() string {
	if r.Take == "" {
		return r.Text
	}
	return fmt.Sprintf("%s (%s=%s)", r.Text, r.Variable, r.Take)
}

// Remarks says what is known of the configured versions besides what Validate refuses: combinations that their projects
// do not test, known problems, and the end of support at a time.
func (c Config) Remarks(now time.Time) []Remark {
	kubernetes, err := semver.ParseTolerant(c.KubernetesVersion)
	if err != nil {
		return nil // Validate says so
	}
	all := append(c.caphRemarks(kubernetes), c.ciliumRemarks(kubernetes)...)
	all = append(all, c.flawRemarks()...)
	if ends, known := kubernetesSupport()[kubernetes.Minor]; known && now.Format(time.DateOnly) > ends {
		r := Remark{Variable: "KUBERNETES_VERSION", Text: fmt.Sprintf("Kubernetes 1.%d gets no fixes since %s",
			kubernetes.Minor, ends)}
		if newest := Workload().Max; kubernetes.Minor >= newest {
			r.Text += fmt.Sprintf(", and Cluster API v1.%d manages no newer one", ClusterctlMinor)
		}
		all = append(all, r)
	}
	return all
}

// caphRemarks are about what CAPH is tested with.
func (c Config) caphRemarks(kubernetes semver.Version) []Remark {
	caph, err := semver.ParseTolerant(c.CAPHVersion)
	if err != nil {
		return nil
	}
	tested, listed := caphTests()[caph.Minor]
	series := fmt.Sprintf("CAPH v%d.%d", caph.Major, caph.Minor)
	if caph.Major != 1 || !listed {
		return []Remark{untested("CAPH_VERSION", "which Kubernetes and Cluster API %s is tested with is not known to this "+
			"command", series)}
	}
	var all []Remark
	if capi, err := semver.ParseTolerant(c.CAPIVersion); err == nil && !tested.capi.Has(capi) {
		all = append(all, untested("CAPH_VERSION", "%s is tested with Cluster API %s, not with %s", series, tested.capi,
			c.CAPIVersion))
	}
	if !tested.kubernetes.Has(kubernetes) {
		all = append(all, untested("CAPH_VERSION", "%s is tested with Kubernetes %s, not with %s", series, tested.kubernetes,
			c.KubernetesVersion))
	}
	return all
}

// untested is the remark that nothing says whether versions go together.
func untested(variable, format string, args ...any) Remark {
	return Remark{Variable: variable, Untested: true, Text: fmt.Sprintf(format, args...)}
}

// ciliumRemarks are about what Cilium is tested with.
func (c Config) ciliumRemarks(kubernetes semver.Version) []Remark {
	cilium, err := semver.Parse(c.CiliumVersion)
	if err != nil {
		return nil
	}
	series := fmt.Sprintf("Cilium %d.%d", cilium.Major, cilium.Minor)
	tested, listed := ciliumTests()[cilium.Minor]
	switch {
	case cilium.Major != 1 || !listed:
		return []Remark{untested("CILIUM_VERSION", "which Kubernetes %s is tested with is not known to this command", series)}
	case !tested.Has(kubernetes):
		return []Remark{untested("CILIUM_VERSION", "%s is tested with Kubernetes %s, not with %s", series, tested,
			c.KubernetesVersion)}
	}
	return nil
}

// titleOf is what a version is of: "Hetzner cloud controller manager chart".
func titleOf(variable string) string { return strings.TrimSuffix(variableOf(variable).Doc, " chart") }

// variableOf finds a variable by its name.
func variableOf(name string) Variable {
	for _, v := range variables() {
		if v.Name == name {
			return v
		}
	}
	panic("config: there is no variable " + name) // TestVersionSets looks up every name of the tables
}

// providers checks that the providers are of the line that goes with the core: CABPT v0.7 and CACPPT v0.6 (their go.mod
// and release notes), and CAPH v1.1 (CAPHMinor), are for Cluster API v1.11 and newer.
func (v *Findings) providers(c Config) {
	if caph, ok := v.version("caphVersion", c.CAPHVersion, "v"); ok &&
		(caph.Major > 1 || caph.Major == 1 && caph.Minor > CAPHMinor) {
		v.addPair("caphVersion", "capiVersion", c.CAPHVersion, fmt.Sprintf("is for Cluster API v1.%d and newer: it reads "+
			"Cluster API's objects as v1beta2, which v1.%d does not serve", ClusterctlMinor+1, ClusterctlMinor),
			fmt.Sprintf("choose v1.%d.x, which goes with v1.%d", CAPHMinor, ClusterctlMinor))
	}
	for _, p := range []struct {
		field, value string
		minor        uint64
	}{{"cabptVersion", c.CABPTVersion, 6}, {"cacpptVersion", c.CACPPTVersion, 5}} {
		is, ok := v.version(p.field, p.value, "v")
		if ok && (is.Major > 0 || is.Minor > p.minor) {
			v.addPair(p.field, "capiVersion", p.value, fmt.Sprintf("is for Cluster API v1.%d and newer", ClusterctlMinor+1),
				fmt.Sprintf("choose v0.%d.x, which goes with v1.%d", p.minor, ClusterctlMinor))
		}
	}
}

// SameMinor tells whether two versions are patch releases of one minor version. A text that is no version has none.
func SameMinor(a, b string) bool {
	x, errX := semver.ParseTolerant(a)
	y, errY := semver.ParseTolerant(b)
	return errX == nil && errY == nil && x.Major == y.Major && x.Minor == y.Minor
}
