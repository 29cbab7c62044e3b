package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/blang/semver/v4"
)

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

// endsSoon is how long before its end the end of support is named.
const endsSoon = 90 * 24 * time.Hour

// Remarks says what is known of the configured versions besides what Validate refuses: combinations that their projects
// do not test, known problems, the end of support where that is near or past at a time, and newer patch releases.
func (c Config) Remarks(now time.Time) []Remark {
	if _, err := semver.ParseTolerant(c.KubernetesVersion); err != nil {
		return nil // Validate says so
	}
	all := append(c.untestedRemarks(), c.flawRemarks()...)
	all = append(all, c.supportRemarks(now)...)
	return append(all, c.patchRemarks()...)
}

// supportRemarks name what gets no fixes any more, or soon.
func (c Config) supportRemarks(now time.Time) (all []Remark) {
	for _, e := range c.Table().Support {
		v, err := semver.ParseTolerant(variableOf(e.Component).Get(c))
		if err != nil || SeriesOf(v) != e.Series {
			continue
		}
		series := componentNames()[e.Component] + " " + e.Series.String()
		switch {
		case now.Format(time.DateOnly) > e.Ends.String():
			all = append(all, Remark{Variable: e.Component, Text: fmt.Sprintf("%s gets no fixes since %s", series, e.Ends)})
		case e.Ends.Sub(now) <= endsSoon:
			all = append(all, Remark{Variable: e.Component, Text: fmt.Sprintf("%s gets fixes until %s only", series, e.Ends)})
		}
	}
	return all
}

// patchRemarks name newer patch releases of what is configured, in one remark.
func (c Config) patchRemarks() []Remark {
	var newer []string
	for _, e := range c.Table().Newest {
		is, err := semver.ParseTolerant(variableOf(e.Component).Get(c))
		newest, errNewest := semver.ParseTolerant(e.Version)
		if err == nil && errNewest == nil && SeriesOf(is) == e.Series && is.LT(newest) {
			newer = append(newer, componentNames()[e.Component]+" "+e.Version)
		}
	}
	if len(newer) == 0 {
		return nil
	}
	return []Remark{{Variable: "VERSIONS", Text: "newer patch releases are known: " + strings.Join(newer, ", ")}}
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
	panic("config: there is no variable " + name) // ParseTable refuses every name that is no component
}
