package config

import (
	"errors"
	"fmt"
	"maps"

	"github.com/blang/semver/v4"
)

// Flaw is a problem that is known of versions of one component. It is a remark and no error: a cluster can be created
// with it.
type Flaw struct {
	Component string `json:"component"`
	From      string `json:"from,omitempty"`   // the first version that has it; empty: all before the fixed one
	Before    string `json:"before,omitempty"` // the first version without it; empty: none is known
	// Leaving is for what only an upgrade meets: from a version before this one to one that has the flaw.
	Leaving string `json:"leaving,omitempty"`
	// Seen is what of a cluster meets it, without Leaving at any time; empty: any cluster.
	Seen    string        `json:"seen,omitempty"`
	What    string        `json:"what"`              // goes wrong
	Take    []Replacement `json:"take,omitempty"`    // versions without it, the first that goes with the others
	Rollout bool          `json:"rollout,omitempty"` // a rollout of the control plane meets it: see Remark.Rollout
	Origin
}

// Replacement is a version to take in the place of one that has a flaw.
type Replacement struct {
	Version string     `json:"version"`
	With    *Condition `json:"with,omitempty"` // nil: with any
}

// Condition holds where the configured version of a component is in a range.
type Condition struct {
	Component string `json:"component"`
	Series    Range  `json:"series"`
}

// SeenNoMetadataRoute is a control plane that was made without the route to Hetzner's metadata.
const SeenNoMetadataRoute = "a control plane without a route to the metadata"

// SeenOldTalosconfig is a talosconfig whose certificate is not marked for use by a client.
const SeenOldTalosconfig = "a talosconfig without client key usage"

func (f Flaw) name() string { return "flaw of " + f.Component }

func (f Flaw) check() error {
	if f.What == "" {
		return errors.New("it does not say what goes wrong")
	}
	if f.Seen != "" && f.Seen != SeenNoMetadataRoute && f.Seen != SeenOldTalosconfig {
		return fmt.Errorf("nothing looks for %q", f.Seen)
	}
	for _, bound := range []string{f.From, f.Before, f.Leaving} {
		if _, err := semver.Parse(bound); bound != "" && err != nil {
			return fmt.Errorf("%q: %w", bound, err)
		}
	}
	for _, r := range f.Take {
		if _, err := semver.ParseTolerant(r.Version); err != nil {
			return fmt.Errorf("take %q: %w", r.Version, err)
		}
		if f.has(r.Version) && (f.Leaving == "" || f.leaves(r.Version)) {
			return fmt.Errorf("%s, which is to be taken, has it", r.Version)
		}
		if r.With != nil {
			if err := isComponent(r.With.Component); err != nil {
				return err
			}
		}
	}
	return isComponent(f.Component)
}

// has tells whether a version has the flaw. What is no version has none: Validate says so.
func (f Flaw) has(version string) bool {
	v, err := semver.ParseTolerant(version)
	return err == nil && (f.From == "" || v.GE(semver.MustParse(f.From))) &&
		(f.Before == "" || v.LT(semver.MustParse(f.Before)))
}

// leaves tells whether an upgrade from a version meets the flaw.
func (f Flaw) leaves(version string) bool {
	v, err := semver.ParseTolerant(version)
	return f.Leaving != "" && err == nil && v.LT(semver.MustParse(f.Leaving))
}

// remark is what is said of the flaw of a version.
func (f Flaw) remark(c Config, version string) Remark {
	r := Remark{Variable: f.Component, Text: fmt.Sprintf("%s %s %s", titleOf(f.Component), version, f.What),
		Rollout: f.Rollout}
	r.Text += "; see " + f.Source
	for _, take := range f.Take {
		if take.fits(c) {
			r.Take = take.Version
			break
		}
	}
	return r
}

// fits reports whether the replacement goes with the configured versions.
func (r Replacement) fits(c Config) bool {
	if r.With == nil {
		return true
	}
	v, err := semver.ParseTolerant(variableOf(r.With.Component).Get(c))
	return err == nil && within([]Range{r.With.Series}, SeriesOf(v))
}

// hidden is the configured version that has the flaw, where the one that runs in its place does not; empty: there is
// none.
func (f Flaw) hidden(c Config) string {
	if was := c.replaced[f.Component]; f.has(was) && !f.has(variableOf(f.Component).Get(c)) {
		return was
	}
	return ""
}

// flawRemarks are the known problems of the configured versions. One of a version that a lab does not run is among
// them: no rehearsal would show it.
func (c Config) flawRemarks() (all []Remark) {
	for _, f := range c.Table().Flaws {
		version := variableOf(f.Component).Get(c)
		switch was := f.hidden(c); {
		case f.Leaving != "", f.Seen != "":
		case f.has(version):
			all = append(all, f.remark(c, version))
		case was != "":
			r := f.remark(c, was)
			r.Text += fmt.Sprintf("; the lab runs %s in its place, so that no rehearsal shows it", version)
			all = append(all, r)
		}
	}
	return all
}

// UpgradeRemarks are the known problems that an upgrade from other versions, by variable, to the configured ones meets
// besides those of Remarks; without versions, those that the cluster meets at any time. seen is what was seen of
// the cluster, such as SeenOldTalosconfig.
func (c Config) UpgradeRemarks(from map[string]string, seen ...string) (all []Remark) {
	has := map[string]bool{"": true}
	for _, s := range seen {
		has[s] = true
	}
	for _, f := range c.Table().Flaws {
		version := variableOf(f.Component).Get(c)
		if was := f.hidden(c); was != "" {
			version = was
		}
		met := f.leaves(from[f.Component]) || f.Leaving == "" && f.Seen != ""
		if f.has(version) && met && has[f.Seen] {
			all = append(all, f.remark(c, version))
		}
	}
	return all
}

// RolloutFlaw is why a rollout of the control plane may never end with a version of its provider, CACPPT; nil: no such
// reason is known.
func (c Config) RolloutFlaw(cacppt string) *Remark {
	for _, f := range c.Table().Flaws {
		if f.Component == "CACPPT_VERSION" && f.Rollout && f.has(cacppt) {
			r := f.remark(c, cacppt)
			return &r
		}
	}
	return nil
}

// Replace writes a value in the place of a configured version, which Remarks then still know: a lab runs the versions
// that it has.
func (c *Config) Replace(variable, version string) error {
	v := variableOf(variable)
	replaced := maps.Clone(c.replaced)
	if replaced == nil {
		replaced = map[string]string{}
	}
	if _, again := replaced[variable]; !again {
		replaced[variable] = v.Get(*c)
	}
	c.replaced = replaced
	return v.Set(c, version)
}

// Replaced are the known problems of a version that Replace wrote another in place of, and that this one does not have.
func (c Config) Replaced(variable string) (all []Remark) {
	for _, f := range c.Table().Flaws {
		if was := f.hidden(c); f.Component == variable && f.Leaving == "" && was != "" {
			all = append(all, f.remark(c, was))
		}
	}
	return all
}
