package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/flow"
)

// Addon is a Helm release of the operator's choice, which the bootstrap installs and upgrades like its own.
type Addon struct {
	// name of the Helm release; that of a shipped add-on has the rest by default
	Name string `json:"name" yaml:"name"`
	// name of the chart in its repository
	Chart string `json:"chart,omitempty" yaml:"chart,omitempty"`
	// chart repository, https:// or oci://
	Repository string `json:"repository,omitempty" yaml:"repository,omitempty"`
	// exact version of the chart
	Version string `json:"version,omitempty" yaml:"version,omitempty"`
	// namespace that the release is installed in; it is created where it is missing
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`
	// level of Pod Security that the namespace enforces; empty: its own, or that of Talos
	PodSecurity string `json:"podSecurity,omitempty" yaml:"podSecurity,omitempty"`
	// values file in the folder bootstrap/addons; empty: NAME-values.yaml, where there is one
	Values string `json:"values,omitempty" yaml:"values,omitempty"`
	// whether the run waits until the workloads are ready, and verifies that they are; nil: it does
	Wait *bool `json:"wait,omitempty" yaml:"wait,omitempty"`
	// longest time for the release, as RELEASE_TIMEOUT; 0: RELEASE_TIMEOUT
	Timeout Duration `json:"timeout,omitempty" yaml:"timeout,omitempty"`
	// other add-ons that are installed first
	After []string `json:"after,omitempty" yaml:"after,omitempty"`
}

// Names of the shipped add-ons.
const (
	AddonCSI           = "hcloud-csi"
	AddonAutoscaler    = "cluster-autoscaler"
	AddonMetricsServer = "metrics-server"
)

// ShippedAddons are the add-ons that need no more than their name.
//
// hcloud-csi: 2.20.2 is the only release that its version policy (docs/kubernetes/reference/version-policy.md of
// hetznercloud/csi-driver) has for Kubernetes 1.32 as well as for 1.33 and later. cluster-autoscaler: the project's
// table has charts from 9.47.0 on for Kubernetes 1.33 and from 9.45.0 on for 1.32; the image follows
// KUBERNETES_VERSION, see AutoscalerVersion. metrics-server: chart 3.13.0 has metrics-server 0.8.0, for Kubernetes 1.31
// and later. gitea: chart 12.7.0 has Gitea 1.27.0.
func ShippedAddons() []Addon {
	return []Addon{
		{Name: AddonCSI, Chart: "hcloud-csi", Repository: "https://charts.hetzner.cloud", Version: "2.20.2",
			Namespace: "kube-system"},
		{Name: AddonAutoscaler, Chart: "cluster-autoscaler", Repository: "https://kubernetes.github.io/autoscaler",
			Version: "9.50.1", Namespace: "kube-system"},
		{Name: AddonMetricsServer, Chart: "metrics-server",
			Repository: "https://kubernetes-sigs.github.io/metrics-server", Version: "3.13.0", Namespace: "kube-system"},
		{Name: AddonGitea, Chart: "gitea", Repository: "https://dl.gitea.com/charts", Version: "12.7.0",
			Namespace: GiteaNamespace},
	}
}

// AutoscalerVersion is the cluster autoscaler for a version of Kubernetes: it simulates the scheduler of one minor
// version. Of the versions listed here, later patches are known; of others, the first exists.
func AutoscalerVersion(kubernetes string) string {
	v, err := semver.ParseTolerant(kubernetes)
	if err != nil {
		return "" // Validate refuses it
	}
	minor := fmt.Sprintf("%d.%d", v.Major, v.Minor)
	known := map[string]string{"1.31": "v1.31.4", "1.32": "v1.32.3", "1.33": "v1.33.1"}
	if version, found := known[minor]; found {
		return version
	}
	return "v" + minor + ".0"
}

// Addons are the add-ons of a cluster. As a variable (ADDONS) they are the names of shipped ones.
type Addons []Addon

// String is the names, with commas.
func (a Addons) String() string { return strings.Join(a.names(), ",") }

func (a Addons) names() []string {
	names := make([]string, len(a))
	for i, one := range a {
		names[i] = one.Name
	}
	return names
}

// Plain tells whether the add-ons have nothing but names, as ADDONS gives them.
func (a Addons) Plain() bool {
	return !slices.ContainsFunc(a, func(one Addon) bool {
		return one.Chart != "" || one.Repository != "" || one.Version != "" || one.Namespace != "" || one.PodSecurity != "" ||
			one.Values != "" || one.Wait != nil || one.Timeout != 0 || len(one.After) > 0
	})
}

// set reads the value of ADDONS: names of add-ons, with commas.
func (a *Addons) set(value string) {
	*a = nil
	for _, name := range Listed(value) {
		*a = append(*a, Addon{Name: name})
	}
}

// shipped is the shipped add-on of a name.
func shipped(name string) (Addon, bool) {
	all := ShippedAddons()
	if i := slices.IndexFunc(all, func(a Addon) bool { return a.Name == name }); i >= 0 {
		return all[i], true
	}
	return Addon{}, false
}

// Addon is an add-on with the values that it has by default.
func (c Config) Addon(a Addon) Addon {
	known, is := shipped(a.Name)
	if !is {
		return a
	}
	known.Repository = cmp.Or(c.AddonsRepository, known.Repository)
	a.Chart, a.Repository = cmp.Or(a.Chart, known.Chart), cmp.Or(a.Repository, known.Repository)
	a.Version, a.Namespace = cmp.Or(a.Version, known.Version), cmp.Or(a.Namespace, known.Namespace)
	return a
}

// ValuesFile is the name of the add-on's values file in the folder bootstrap/addons.
func (a Addon) ValuesFile() string { return cmp.Or(a.Values, AddonValuesFile(a.Name)) }

// AddonValuesFile is the name of the values file that an add-on of this name has by default.
func AddonValuesFile(name string) string { return name + "-values.yaml" }

// Waits tells whether a run waits for the add-on's workloads.
func (a Addon) Waits() bool { return a.Wait == nil || *a.Wait }

// Within is the longest time for the add-on's release.
func (c Config) Within(a Addon) Duration { return cmp.Or(a.Timeout, c.ReleaseTimeout) }

// maxRelease is the longest name of a Helm release: Helm appends to it in labels, which have 63 characters.
const maxRelease = 53

// maxNamespace is the longest name of a namespace, a DNS label.
const maxNamespace = 63

// podSecurityLevels are the levels of Kubernetes' Pod Security Standards.
var podSecurityLevels = []string{"privileged", "baseline", "restricted"}

// reserved are the names of Slipway's own releases, and those that the target logs has for programs.
var reserved = []string{"cilium", "hcloud-cloud-controller-manager", "talos-cloud-controller-manager", "hcloud-ccm",
	"talos-ccm", "capi", "caph", "cabpt", "cacppt"}

// valuesName is a YAML file of the folder bootstrap/addons.
var valuesName = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]*\.yaml$`)

// addons checks the add-ons; whether their values files exist is for who reads files.
func (v *Findings) addons(c Config) {
	seen := map[string]bool{}
	for i, given := range c.Addons {
		at := func(field string) string { return fmt.Sprintf("addons[%d].%s", i, field) }
		if !v.addonName(given, at("name"), seen) {
			continue
		}
		a := c.Addon(given)
		v.addonChart(a, at)
		if a.PodSecurity != "" && !slices.Contains(podSecurityLevels, a.PodSecurity) {
			v.add(at("podSecurity"), a.PodSecurity, "is no level of Pod Security", "write one of "+
				strings.Join(podSecurityLevels, ", "))
		}
		if a.PodSecurity != "" && a.Namespace == "kube-system" {
			v.add(at("podSecurity"), a.PodSecurity, "is given for the namespace kube-system", "leave it out: Talos exempts "+
				"that namespace")
		}
		if a.Values != "" && !valuesName.MatchString(a.Values) {
			v.add(at("values"), a.Values, "is not the name of a YAML file", "put the file into the folder bootstrap/addons, and "+
				"write its name alone, like "+AddonValuesFile(a.Name))
		}
		if _, known := shipped(a.Name); known && a.Values != "" {
			v.add(at("values"), a.Values, "is given for a shipped add-on", "write your values into bootstrap/addons/"+
				AddonValuesFile(a.Name)+", which is merged over the shipped one")
		}
		if a.Timeout != 0 {
			v.timeout(at("timeout"), a.Timeout)
		}
	}
	v.addonOrder(c)
	v.repository("addonsRepository", c.AddonsRepository)
}

// addonName checks the name, and that what is not shipped has a chart; false: nothing else of the add-on makes sense.
func (v *Findings) addonName(a Addon, field string, seen map[string]bool) bool {
	names := Addons(ShippedAddons()).names()
	_, known := shipped(a.Name)
	switch near := flow.Nearest(a.Name, names); {
	case a.Name == "":
		v.add(field, a.Name, "is empty", "write the name of a shipped add-on ("+strings.Join(names, ", ")+"), or of a release "+
			"of your own")
	case !dnsLabel.MatchString(a.Name) || len(a.Name) > maxRelease:
		v.add(field, a.Name, "cannot be the name of a Helm release", fmt.Sprintf("use lower case letters, digits and dashes, "+
			"beginning with a letter, %d characters at most", maxRelease))
	case slices.Contains(reserved, a.Name):
		v.add(field, a.Name, "is a name of Slipway's own", "its releases are not add-ons: change their values in the folder "+
			"bootstrap, and give yours another name")
	case seen[a.Name]:
		v.add(field, a.Name, "is a second add-on of this name", "give each release a name of its own")
	case !known && a.Chart == "" && near != "":
		v.add(field, a.Name, "is not a shipped add-on, and has no chart", "did you mean "+near+"? For a release of your own, "+
			"give chart, repository, version and namespace")
	case !known && a.Chart == "":
		v.add(field, a.Name, "is not a shipped add-on ("+strings.Join(names, ", ")+"), and has no chart", "for a release of "+
			"your own, give chart, repository, version and namespace in bootstrap.yaml")
	default:
		seen[a.Name] = true
		return true
	}
	return false
}

// addonChart checks what says where the chart comes from and where it goes.
func (v *Findings) addonChart(a Addon, at func(string) string) {
	for _, f := range []struct{ field, value, what string }{{"repository", a.Repository, "https://host/path or " +
		"oci://host/path"}, {"version", a.Version, "the exact version of the chart"}, {"namespace", a.Namespace,
		"the namespace that the release is installed in"}} {
		if f.value == "" {
			v.add(at(f.field), "", "is missing for "+a.Name, "write "+f.what)
		}
	}
	v.repository(at("repository"), a.Repository)
	if a.Namespace != "" && (!namespaceName.MatchString(a.Namespace) || len(a.Namespace) > maxNamespace) {
		v.add(at("namespace"), a.Namespace, "cannot be the name of a namespace", "use lower case letters, digits and dashes")
	}
	if a.Version != "" && !chartVersion.MatchString(a.Version) {
		v.add(at("version"), a.Version, "is not an exact version", "write all three numbers, like 4.12.1: a range would install "+
			"another chart one day")
	}
}

var namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// chartVersion is a semantic version, with or without the leading v that some charts have.
var chartVersion = regexp.MustCompile(`^v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)

// addonOrder checks that the order of the add-ons has no cycle.
func (v *Findings) addonOrder(c Config) {
	names := c.addons().names()
	after := map[string][]string{}
	for i, a := range c.addons() {
		for n, other := range a.After {
			field := fmt.Sprintf("addons[%d].after[%d]", i, n)
			switch near := flow.Nearest(other, names); {
			case other == a.Name:
				v.add(field, other, "is the add-on itself", "leave it out")
			case slices.Contains(names, other):
				after[a.Name] = append(after[a.Name], other)
			case near != "" && near != a.Name:
				v.add(field, other, "is no add-on of the list", "did you mean "+near+"?")
			default:
				v.add(field, other, "is no add-on of the list", "add it, or leave it out: Cilium and the cloud controller "+
					"managers come before every add-on")
			}
		}
	}
	if _, cycle := ordered(names, after); cycle != nil {
		i := slices.Index(names, cycle[0])
		v.add(fmt.Sprintf("addons[%d].after", i), strings.Join(cycle, " after "), "is a cycle", "take one of them out of an "+
			"after")
	}
}

// ordered are names, each behind those that it comes after, as far as there is no cycle. The first cycle goes from a
// name to itself; nil: there is none.
func ordered(names []string, after map[string][]string) (sorted, cycle []string) {
	var path []string
	var visit func(string)
	visit = func(name string) {
		if i := slices.Index(path, name); i >= 0 {
			if cycle == nil {
				cycle = append(slices.Clone(path[i:]), name)
			}
			return
		}
		if slices.Contains(sorted, name) {
			return
		}
		path = append(path, name)
		for _, other := range after[name] {
			visit(other)
		}
		path = path[:len(path)-1]
		sorted = append(sorted, name)
	}
	for _, name := range names {
		visit(name)
	}
	return sorted, cycle
}

// InstallOrder are the add-ons with their defaults, each behind those that it is installed after.
func (c Config) InstallOrder() (sorted []Addon) {
	all := c.addons()
	names, after := all.names(), map[string][]string{}
	for _, a := range all {
		after[a.Name] = slices.DeleteFunc(slices.Clone(a.After),
			func(other string) bool { return !slices.Contains(names, other) })
	}
	order, _ := ordered(names, after)
	for _, name := range order {
		sorted = append(sorted, c.Addon(all[slices.Index(names, name)]))
	}
	return sorted
}
