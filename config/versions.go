package config

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
)

// DefaultVersionSet is the set that is used where VERSIONS names no other.
const DefaultVersionSet = "guide"

// VersionSet are versions that were chosen to go together. VERSIONS selects a set, and a version that is configured by
// itself overrides that of the set.
type VersionSet struct {
	Name     string            `json:"name"`
	Doc      string            `json:"doc"`      // one sentence
	Versions map[string]string `json:"versions"` // by variable: "TALOS_VERSION" → "v1.12.2"
}

// VersionSets lists the sets, the default first. What goes with which is in compatibility.go.
func VersionSets() []VersionSet {
	return []VersionSet{
		{Name: DefaultVersionSet, Doc: "the versions of the guide", Versions: map[string]string{
			"TALOS_VERSION":      "v1.12.2",
			"KUBERNETES_VERSION": "v1.32.2",
			"CAPI_VERSION":       "v1.10.10",
			"CAPH_VERSION":       "v1.0.7",
			"CABPT_VERSION":      "v0.6.11",
			"CACPPT_VERSION":     "v0.5.12",
			"CILIUM_VERSION":     "1.18.6",
			"HCLOUD_CCM_VERSION": "1.29.2",
			"TALOS_CCM_VERSION":  "0.5.4",
		}},
		// Talos's providers support no Cluster API after v1.10, which manages no Kubernetes after v1.33 and serves no API
		// that CAPH v1.1 can read: these two decide the rest. The Talos CCM's chart 0.5.4 is that of its v1.12.0.
		{Name: "current", Doc: "the newest that go together and work with Hetzner's API of November 2026",
			Versions: map[string]string{
				"TALOS_VERSION":      "v1.13.9",
				"KUBERNETES_VERSION": "v1.33.13",
				"CAPI_VERSION":       "v1.10.10",
				"CAPH_VERSION":       "v1.0.12",
				"CABPT_VERSION":      "v0.6.12",
				"CACPPT_VERSION":     "v0.5.13",
				"CILIUM_VERSION":     "1.18.13",
				"HCLOUD_CCM_VERSION": "1.39.0",
				"TALOS_CCM_VERSION":  "0.5.4",
			}},
	}
}

// VersionSetOf is the set of a name. An empty name is the default's.
func VersionSetOf(name string) (VersionSet, bool) {
	if name == "" {
		name = DefaultVersionSet
	}
	for _, s := range VersionSets() {
		if s.Name == name {
			return s, true
		}
	}
	return VersionSet{}, false
}

// Apply writes the versions of the set into c, but for those of variables that keep reports true for.
func (s VersionSet) Apply(c *Config, keep func(Variable) bool) error {
	c.Versions = s.Name
	for _, v := range variables() {
		version, has := s.Versions[v.Name]
		if !has || keep(v) {
			continue
		}
		if err := v.Set(c, version); err != nil {
			return fmt.Errorf("use the version set %s: %w", s.Name, err)
		}
	}
	return nil
}

// versionSet refuses the name of a set that there is not.
func (v *Findings) versionSet(c Config) {
	if _, known := VersionSetOf(c.Versions); known {
		return
	}
	hint := "choose one of " + strings.Join(versionSetNames(), ", ")
	if near := flow.Nearest(c.Versions, versionSetNames()); near != "" {
		hint = fmt.Sprintf("did you mean %s? There are %s", near, strings.Join(versionSetNames(), ", "))
	}
	v.add("versions", c.Versions, "is not a version set", hint)
}

// versionSetNames are the values that VERSIONS can have.
func versionSetNames() (names []string) {
	for _, s := range VersionSets() {
		names = append(names, s.Name)
	}
	return names
}
