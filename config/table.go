package config

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// tableFormat is that of config/versions.yaml, which this command reads.
const tableFormat = 1

// Table is what is known of versions: config/versions.yaml, or a newer file of its format. It is not changed once it is
// read.
type Table struct {
	Format        int          `json:"format"`
	AsOf          Date         `json:"asOf"`
	Default       string       `json:"default"` // the set of a new cluster where VERSIONS names none
	Earlier       Earlier      `json:"earlier"`
	Sets          []VersionSet `json:"sets"`
	Compatibility []Pair       `json:"compatibility"`
	Serves        []Served     `json:"serves"`
	Support       []Support    `json:"support"`
	Newest        []Newest     `json:"newest"`
	Flaws         []Flaw       `json:"flaws"`
}

// Earlier is what VERSIONS meant in releases that did not record the set of a cluster.
type Earlier struct {
	Default string `json:"default"` // where it named no set
	Current string `json:"current"` // where it named CurrentSet
}

// Origin is where an entry of a table is from.
type Origin struct {
	Source string `json:"source"`
	AsOf   Date   `json:"asOf"` // when the source was read
}

// Served are the API versions in which some series of a component serve its own kinds.
type Served struct {
	Component string  `json:"component"`
	Series    []Range `json:"series"`
	// Versions of the API, the oldest first.
	Versions []string `json:"versions"`
	Origin
}

// Support is until when a series gets fixes from its project.
type Support struct {
	Component string `json:"component"`
	Series    Series `json:"series"`
	Ends      Date   `json:"ends"`
	Origin
}

// Newest is the newest patch release of a series that is known.
type Newest struct {
	Component string `json:"component"`
	Series    Series `json:"series"`
	Version   string `json:"version"`
	Origin
}

//go:embed versions.yaml
var tableInside []byte

var parsedInside = sync.OnceValue(func() *Table {
	t, err := ParseTable(tableInside)
	if err != nil {
		panic(err) // TestTableInside would have met it
	}
	return t
})

// Shipped is the table inside this command.
func Shipped() *Table { return parsedInside() }

// ParseTable reads a table. It refuses keys that it does not know, and entries that contradict each other.
func ParseTable(data []byte) (*Table, error) {
	t := &Table{}
	if err := yaml.UnmarshalStrict(data, t); err != nil {
		return nil, fmt.Errorf("read the table of versions: %w", err)
	}
	if err := errors.Join(t.problems()...); err != nil {
		return nil, fmt.Errorf("read the table of versions: %w", err)
	}
	return t, nil
}

// problems are what is wrong with a table whose form is right.
func (t *Table) problems() (all []error) {
	add := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if t.Format != tableFormat {
		add("format %d is not %d: a release of another time wrote it", t.Format, tableFormat)
		return all
	}
	if t.AsOf.IsZero() {
		add("asOf is missing")
	}
	if len(t.Compatibility) == 0 || len(t.Serves) == 0 || len(t.Support) == 0 || len(t.Newest) == 0 || len(t.Flaws) == 0 {
		add("one of compatibility, serves, support, newest and flaws is missing")
	}
	for what, name := range map[string]string{"default": t.Default, "earlier.default": t.Earlier.Default,
		"earlier.current": t.Earlier.Current} {
		if !slices.ContainsFunc(t.Sets, func(s VersionSet) bool { return s.Name == name }) {
			add("%s: %q is not a set", what, name)
		}
	}
	if t.newestSet() == "" {
		add("no set has a month as its name, such as 2026-11, which %s would be", CurrentSet)
	}
	for _, s := range t.Sets {
		all = append(all, s.problems()...)
	}
	for i, e := range t.entries() {
		if err := e.check(); err != nil {
			add("entry %d (%s): %w", i+1, e.name(), err)
		}
		if o := e.origin(); o.Source == "" || o.AsOf.IsZero() {
			add("entry %d (%s): source or asOf is missing", i+1, e.name())
		}
	}
	return append(all, t.contradictions()...)
}

// entry is a part of a table that has a source.
type entry interface {
	name() string
	check() error
	origin() Origin
}

func (o Origin) origin() Origin { return o }

// entries are all but the sets.
func (t *Table) entries() (all []entry) {
	for _, e := range t.Compatibility {
		all = append(all, e)
	}
	for _, e := range t.Serves {
		all = append(all, e)
	}
	for _, e := range t.Support {
		all = append(all, e)
	}
	for _, e := range t.Newest {
		all = append(all, e)
	}
	for _, e := range t.Flaws {
		all = append(all, e)
	}
	return all
}

func (e Served) name() string { return "what " + e.Component + " serves" }
func (e Served) check() error {
	if len(e.Series) == 0 || len(e.Versions) == 0 {
		return errors.New("series or versions are missing")
	}
	return isComponent(e.Component)
}

func (e Support) name() string { return "support of " + e.Component }
func (e Support) check() error {
	if e.Ends.IsZero() || e.Series == (Series{}) {
		return errors.New("series or ends is missing")
	}
	return isComponent(e.Component)
}

func (e Newest) name() string { return "newest " + e.Component }
func (e Newest) check() error {
	v, err := semver.ParseTolerant(e.Version)
	if err != nil || SeriesOf(v) != e.Series {
		return fmt.Errorf("%q is not a version of series %s", e.Version, e.Series)
	}
	return isComponent(e.Component)
}

// contradictions are entries that are there twice.
func (t *Table) contradictions() (all []error) {
	seen := map[string]bool{}
	once := func(key string) {
		if seen[key] {
			all = append(all, fmt.Errorf("%s is there twice", key))
		}
		seen[key] = true
	}
	for _, s := range t.Sets {
		once("set " + s.Name)
	}
	for _, e := range t.Compatibility {
		for _, s := range e.Series {
			once(fmt.Sprintf("%s %s with %s", e.Component, s, e.With))
		}
	}
	for _, e := range t.Support {
		once(fmt.Sprintf("support of %s %s", e.Component, e.Series))
	}
	for _, e := range t.Newest {
		once(fmt.Sprintf("newest %s %s", e.Component, e.Series))
	}
	return all
}

// isComponent refuses what is no variable that sets have a version of.
func isComponent(name string) error {
	if _, is := componentNames()[name]; !is {
		return fmt.Errorf("%q is not a component", name)
	}
	return nil
}

// componentNames are how components are called in remarks, by variable.
func componentNames() map[string]string {
	return map[string]string{"TALOS_VERSION": "Talos", "KUBERNETES_VERSION": "Kubernetes", "CAPI_VERSION": "Cluster API",
		"CAPH_VERSION": "CAPH", "CABPT_VERSION": "CABPT", "CACPPT_VERSION": "CACPPT", "CILIUM_VERSION": "Cilium",
		"HCLOUD_CCM_VERSION": "the Hetzner CCM", "TALOS_CCM_VERSION": "the Talos CCM"}
}

// OldAfter is the age from which a table is said to be old.
const OldAfter = 90 * 24 * time.Hour

// Age says of when the table is and, where it is old, that a newer one can be taken.
func (t *Table) Age(now time.Time) string {
	days := int(now.Sub(t.AsOf.Time).Hours() / 24)
	if now.Sub(t.AsOf.Time) <= OldAfter {
		return "the table of versions is of " + t.AsOf.String()
	}
	return fmt.Sprintf("the table of versions is of %s, %d days old: a newer release has a newer one, and --versions-file "+
		"names one", t.AsOf, days)
}

// NewestPatch is the newest patch release of a series that the table knows; empty: it knows none.
func (t *Table) NewestPatch(variable string, series Series) string {
	for _, e := range t.Newest {
		if e.Component == variable && e.Series == series {
			return e.Version
		}
	}
	return ""
}

// ServedVersions are the API versions in which a version of Cluster API or CAPH serves its kinds, the oldest first;
// nil: nothing is known of it.
func (t *Table) ServedVersions(variable, version string) []string {
	v, err := semver.ParseTolerant(version)
	if err != nil {
		return nil
	}
	for _, e := range t.Serves {
		if e.Component == variable && within(e.Series, SeriesOf(v)) {
			return e.Versions
		}
	}
	return nil
}
