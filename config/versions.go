package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/blang/semver/v4"

	"github.com/slipway-k8s/slipway/flow"
)

// CurrentSet is the alias of the newest set. It is resolved when a cluster is created or upgraded: what is recorded of
// a cluster names the set itself.
const CurrentSet = "current"

// VersionSet are versions that were chosen to go together. VERSIONS selects a set, and a version that is configured by
// itself overrides that of the set.
type VersionSet struct {
	Name     string            `json:"name"`     // "guide", or a month: "2026-11"
	Doc      string            `json:"doc"`      // what it is, without a full stop
	Versions map[string]string `json:"versions"` // by variable: "TALOS_VERSION" → "v1.12.2"
	Origin
}

var month = regexp.MustCompile(`^20[0-9]{2}-(0[1-9]|1[0-2])$`)

// problems are what is wrong with a set.
func (s VersionSet) problems() (all []error) {
	if s.Name == "" || s.Name == CurrentSet || s.Doc == "" || s.Source == "" || s.AsOf.IsZero() {
		all = append(all, fmt.Errorf("set %q: its name, doc, source or asOf is missing, or the name is taken", s.Name))
	}
	got, want := slices.Sorted(maps.Keys(s.Versions)), slices.Sorted(maps.Keys(componentNames()))
	if !slices.Equal(got, want) {
		all = append(all, fmt.Errorf("set %s has versions of %v, not of %v", s.Name, got, want))
	}
	for variable, version := range s.Versions {
		if _, err := semver.ParseTolerant(version); err != nil {
			all = append(all, fmt.Errorf("set %s: %s: %q: %w", s.Name, variable, version, err))
		}
	}
	return all
}

// newestSet is the name of the set with the latest month; empty: there is none.
func (t *Table) newestSet() (name string) {
	for _, s := range t.Sets {
		if month.MatchString(s.Name) {
			name = max(name, s.Name)
		}
	}
	return name
}

// Set is the set of a name, or of CurrentSet. An empty name is the default's.
func (t *Table) Set(name string) (VersionSet, bool) {
	switch name {
	case "":
		name = t.Default
	case CurrentSet:
		name = t.newestSet()
	}
	i := slices.IndexFunc(t.Sets, func(s VersionSet) bool { return s.Name == name })
	if i < 0 {
		return VersionSet{}, false
	}
	return t.Sets[i], true
}

// EarlierSet is the name of the set that a release which recorded none meant by a value of VERSIONS.
func (t *Table) EarlierSet(versions string) string {
	switch versions {
	case "":
		return t.Earlier.Default
	case CurrentSet:
		return t.Earlier.Current
	}
	return versions
}

// SetNames are the values that VERSIONS can have.
func (t *Table) SetNames() (names []string) {
	for _, s := range t.Sets {
		names = append(names, s.Name)
	}
	return append(names, CurrentSet)
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

// Table is what is known of versions: the table inside this command, or that of DefaultsOf.
func (c Config) Table() *Table {
	if c.table == nil {
		return Shipped()
	}
	return c.table
}

// DefaultsOf are Defaults with another table, which the configuration keeps.
func DefaultsOf(t *Table) Config {
	c := defaults()
	if t != Shipped() {
		c.table = t
	}
	set, _ := t.Set("")
	if err := set.Apply(&c, func(Variable) bool { return false }); err != nil {
		panic(err) // a version that is no text, which ParseTable refuses
	}
	return c
}

// versionSet refuses the name of a set that there is not.
func (v *Findings) versionSet(c Config) {
	if _, known := c.Table().Set(c.Versions); known {
		return
	}
	names := c.Table().SetNames()
	hint := "choose one of " + strings.Join(names, ", ")
	if near := flow.Nearest(c.Versions, names); near != "" {
		hint = fmt.Sprintf("did you mean %s? There are %s", near, strings.Join(names, ", "))
	}
	v.add("versions", c.Versions, "is not a version set", hint)
}
