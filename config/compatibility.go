package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
)

// managementCluster is, in Pair.With, the Kubernetes of the management cluster.
const managementCluster = "management"

// Pair is what is known of some series of a component and the versions of another. What neither works nor breaks is
// untested.
type Pair struct {
	Component string  `json:"component"`
	Series    []Range `json:"series,omitempty"` // empty, together with With: the entry is about all of them
	// With is the other component, or "management"; empty: this command.
	With   string  `json:"with,omitempty"`
	Works  []Range `json:"works"`
	Breaks Outside `json:"breaks,omitzero"`
	Why    string  `json:"why,omitempty"`  // it breaks
	Note   string  `json:"note,omitempty"` // on what is untested
	Origin
}

// Outside are the series before one and those after another; nil: none.
type Outside struct {
	Below *Series `json:"below,omitempty"`
	Above *Series `json:"above,omitempty"`
}

// has reports whether a series is outside, and on which side.
func (o Outside) has(s Series) (old, new bool) {
	return o.Below != nil && s.compare(*o.Below) < 0, o.Above != nil && s.compare(*o.Above) > 0
}

// String is what is not outside: "v1.30 to v1.35", "v1.11 and newer".
func (o Outside) String() string {
	switch {
	case o.Below != nil && o.Above != nil:
		return Range{*o.Below, *o.Above}.String()
	case o.Below != nil:
		return fmt.Sprintf("v%s and newer", o.Below)
	case o.Above != nil:
		return fmt.Sprintf("v%s and older", o.Above)
	}
	return "all versions"
}

func (p Pair) name() string { return p.Component + " with " + p.other() }

func (p Pair) check() error {
	if p.With != "" && p.With != managementCluster {
		if err := isComponent(p.With); err != nil {
			return err
		}
	}
	switch {
	case (p.With == "") != (len(p.Series) == 0):
		return errors.New("series and with go together")
	case p.Breaks != Outside{} && p.Why == "":
		return errors.New("it does not say why it breaks")
	case p.Breaks == Outside{} && len(p.Works) == 0:
		return errors.New("it says nothing")
	}
	for _, r := range p.Works {
		for _, s := range []Series{r.First, r.Last} {
			if old, new := p.Breaks.has(s); old || new {
				return fmt.Errorf("%s both works and breaks", s)
			}
		}
	}
	return isComponent(p.Component)
}

// other is how the other component is called.
func (p Pair) other() string {
	switch p.With {
	case "":
		return "this command"
	case managementCluster:
		return "management clusters of Kubernetes"
	}
	return componentNames()[p.With]
}

// verdict is what is known of two versions.
type verdict int

const (
	works verdict = iota
	untested
	breaks
)

// judgement is a verdict on a version of a component and one of another.
type judgement struct {
	verdict
	Pair        // that says so; of a series that no entry is about only Component and With
	unknown     bool
	series      string // of the component, as remarks name it: "CAPH v1.1"
	withVersion string
	too         string // where it breaks: "old" or "new"
}

// judge says what the table knows of a version together with one of another component. What is no version works: other
// checks say more.
func (t *Table) judge(component, version, with, withVersion string) judgement {
	j := judgement{Pair: Pair{Component: component, With: with}, withVersion: withVersion}
	v, err := semver.ParseTolerant(version)
	w, errWith := semver.ParseTolerant(withVersion)
	if err != nil || errWith != nil {
		return j
	}
	j.series = named(component, version, SeriesOf(v))
	at := slices.IndexFunc(t.Compatibility, func(p Pair) bool {
		return p.Component == component && p.With == with && (p.With == "" || within(p.Series, SeriesOf(v)))
	})
	if at < 0 {
		j.verdict, j.unknown = untested, true
		return j
	}
	j.Pair = t.Compatibility[at]
	old, new := j.Breaks.has(SeriesOf(w))
	switch {
	case old:
		j.verdict, j.too = breaks, "old"
	case new:
		j.verdict, j.too = breaks, "new"
	case !within(j.Works, SeriesOf(w)):
		j.verdict = untested
	}
	return j
}

// Tested reports whether the table says that a version of a component goes with one of another: both are variables, and
// versions as configured.
func (t *Table) Tested(component, version, with, withVersion string) bool {
	j := t.judge(component, version, with, withVersion)
	return j.verdict == works && j.series != ""
}

// Untested reports whether the table knows what a version of a component goes with, and one of another is not among it.
func (t *Table) Untested(component, version, with, withVersion string) bool {
	j := t.judge(component, version, with, withVersion)
	return j.verdict != works && !j.unknown
}

// named is a series as remarks name it: "CAPH v1.1", "Cilium 1.19".
func named(component, version string, s Series) string {
	prefix := ""
	if strings.HasPrefix(version, "v") {
		prefix = "v"
	}
	return fmt.Sprintf("%s %s%s", componentNames()[component], prefix, s)
}

// reason is why two versions do not go together: "it is too old: Talos v1.12 is for Kubernetes v1.30 to v1.35 (…)".
func (j judgement) reason() string {
	return fmt.Sprintf("it is too %s: %s is for %s %s (%s)", j.too, j.series, j.other(), j.Breaks, j.Why)
}

// remark is what is said of versions that nothing says go together.
func (j judgement) remark() Remark {
	r := Remark{Variable: j.Component, Untested: true}
	switch {
	case j.unknown:
		r.Text = fmt.Sprintf("of %s no tests with %s are known to this command", j.series, j.other())
		return r
	case j.With == "":
		r.Text = fmt.Sprintf("%s was not tried with this command, which was with %s", j.series, listed(j.Works))
	case len(j.Works) == 0:
		r.Text = fmt.Sprintf("nothing says that %s goes with %s %s", j.series, j.other(), j.withVersion)
	default:
		r.Text = fmt.Sprintf("%s is tested with %s %s, not with %s", j.series, j.other(), listed(j.Works), j.withVersion)
	}
	if j.Note != "" {
		r.Text += " (" + j.Note + ")"
	}
	r.Text += "; see " + j.Source
	return r
}

// judgements are what the table knows of the configured versions, in its order.
func (c Config) judgements() (all []judgement) {
	t := c.Table()
	judged := map[[2]string]bool{}
	for _, p := range t.Compatibility {
		key := [2]string{p.Component, p.With}
		if judged[key] {
			continue
		}
		judged[key] = true
		version := variableOf(p.Component).Get(c)
		all = append(all, t.judge(p.Component, version, p.With, c.versionWith(p.With, version)))
	}
	return all
}

// versionWith is the configured version that one is judged with; empty: it is not known before a connection.
func (c Config) versionWith(with, version string) string {
	switch {
	case with == "":
		return version
	case with != managementCluster:
		return variableOf(with).Get(c)
	case c.ManagementProvider() == ManagementLocal:
		return c.KubernetesVersion
	case c.ManagementProvider() == ManagementKind:
		return kindVersion(c.KindNodeImage)
	}
	return ""
}

// kindVersion is the Kubernetes of a node image; empty: its tag does not say.
func kindVersion(image string) string {
	m := imageTag.FindStringSubmatch(image)
	if m == nil {
		return ""
	}
	return strings.Join(m[1:4], ".")
}

// untestedRemarks are about versions that nothing says go together. Series that no entry is about are one remark for
// each component.
func (c Config) untestedRemarks() (all []Remark) {
	unknown := map[string]int{} // component → its remark in all
	for _, j := range c.judgements() {
		at, again := unknown[j.Component]
		switch {
		case j.verdict != untested:
		case !j.unknown:
			all = append(all, j.remark())
		case again:
			all[at].Text = strings.Replace(all[at].Text, " are known", ", or "+j.other()+", are known", 1)
		default:
			unknown[j.Component] = len(all)
			all = append(all, j.remark())
		}
	}
	return all
}

// compatibility refuses versions of which it is known that they do not go together.
func (v *Findings) compatibility(c Config) {
	for _, j := range c.judgements() {
		field := variableOf(j.Component)
		switch {
		case j.verdict != breaks, j.With == managementCluster: // KindImage and management say where that is configured
		case j.With == "":
			v.add(field.Field, field.Get(c), fmt.Sprintf("is too %s for this command (%s)", j.too, j.Why), "choose "+
				j.Breaks.String())
		case j.With == "KUBERNETES_VERSION":
			v.addPair("kubernetesVersion", field.Field, c.KubernetesVersion, fmt.Sprintf("does not go with %s %s (%s)",
				field.Field, field.Get(c), j.reason()), "change one of them")
		default:
			with := variableOf(j.With)
			v.addPair(field.Field, with.Field, field.Get(c), fmt.Sprintf("does not go with %s %s: %s is for %s %s (%s)",
				with.Field, with.Get(c), j.series, j.other(), j.Breaks, j.Why), c.Table().choose(j))
		}
	}
}

// choose says which series of a component go with the version that one does not go with.
func (t *Table) choose(j judgement) string {
	hint := fmt.Sprintf("choose %s %s", j.other(), j.Breaks)
	with, err := semver.ParseTolerant(j.withVersion)
	if err != nil {
		return hint
	}
	var fit []string
	for _, p := range t.Compatibility {
		if p.Component != j.Component || p.With != j.With {
			continue
		}
		if old, new := p.Breaks.has(SeriesOf(with)); !old && !new {
			fit = append(fit, listed(p.Series))
		}
	}
	if len(fit) == 0 {
		return hint
	}
	return fmt.Sprintf("choose %s %s, or %s %s", componentNames()[j.Component], strings.Join(fit, ", "), j.other(),
		j.Breaks)
}

// ManagedFrom says why a Cluster API of the table is not managed from a cluster of a Kubernetes: an error where that
// breaks, a remark where it is not tested.
func (t *Table) ManagedFrom(capi, kubernetes string) (*Remark, error) {
	switch j := t.judge("CAPI_VERSION", capi, managementCluster, kubernetes); j.verdict {
	case breaks:
		return nil, errors.New(j.reason())
	case untested:
		r := j.remark()
		return &r, nil
	}
	return nil, nil
}

// TalosRuns says why a Talos does not run a Kubernetes; nil: nothing says so. Both are versions as configured:
// "v1.12.2".
func (t *Table) TalosRuns(talos, kubernetes string) error {
	for name, version := range map[string]string{"Talos": talos, "Kubernetes": kubernetes} {
		if _, err := semver.ParseTolerant(version); err != nil {
			return fmt.Errorf("%s %q: %w", name, version, err)
		}
	}
	if j := t.judge("TALOS_VERSION", talos, "KUBERNETES_VERSION", kubernetes); j.verdict == breaks {
		return errors.New(j.reason())
	}
	return nil
}

// SameMinor tells whether two versions are patch releases of one minor version. A text that is no version has none.
func SameMinor(a, b string) bool {
	x, errX := semver.ParseTolerant(a)
	y, errY := semver.ParseTolerant(b)
	return errX == nil && errY == nil && x.Major == y.Major && x.Minor == y.Minor
}
