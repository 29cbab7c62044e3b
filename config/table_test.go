package config

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

// TestTableInside: the table that is shipped is read, and fits the schema that editors read.
func TestTableInside(t *testing.T) {
	if _, err := ParseTable(tableInside); err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../schemas/versions.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	judged, err := gojsonschema.NewSchema(gojsonschema.NewBytesLoader(schema))
	if err != nil {
		t.Fatal(err)
	}
	fits := func(text string) []gojsonschema.ResultError {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		result, err := judged.Validate(gojsonschema.NewBytesLoader(data))
		if err != nil {
			t.Fatal(err)
		}
		return result.Errors()
	}
	if wrong := fits(string(tableInside)); len(wrong) > 0 {
		t.Error(wrong)
	}
	for _, change := range [][2]string{{"\nflaws:", "\nflaw:"}, {`asOf: "2026-11-25"`, `asOf: today`},
		{"    rollout: true", "    rolout: true"}, {"CAPH_VERSION: v1.0.7", "CAPH_VERSION: newest"}} {
		if text := strings.Replace(string(tableInside), change[0], change[1], 1); len(fits(text)) == 0 {
			t.Errorf("with %q the schema takes the table", change[1])
		}
	}
}

// TestBrokenTables: a table that contradicts itself, or has what this command does not know, is refused.
func TestBrokenTables(t *testing.T) {
	for _, tt := range []struct{ from, to, says string }{
		{"format: 1", "format: 2", "format 2 is not 1"},
		{`default: "2026-11"`, "default: guides", `"guides" is not a set`},
		{`current: "2026-09"`, `current: "2026-08"`, `"2026-08" is not a set`},
		{"\nflaws:", "\nflaw:", `unknown field "flaw"`},
		{"    rollout: true", "    rolout: true", `unknown field "rolout"`},
		{"      CAPH_VERSION: v1.0.7\n", "", "set guide has versions of"},
		{"CAPH_VERSION: v1.0.7", "CAPH_VERSION: newest", "set guide: CAPH_VERSION"},
		{`name: "2026-09"`, "name: guide", "set guide is there twice"},
		{`name: "2026-09"`, "name: current", `set "current"`},
		{`breaks: {below: "1.11"}`, `breaks: {below: "1.14"}`, "1.13 both works and breaks"},
		{`series: ["1.0"]`, `series: [1.0]`, "cannot unmarshal number"},
		{`series: ["1.0"]`, `series: ["1.x"]`, `"1.x" is not a minor version`},
		{`works: ["1.31-1.34"]`, `works: ["1.34-1.31"]`, "ends before it begins"},
		{"    source: syself/cluster-api-provider-hetzner docs/caph", "    note: syself docs/caph", "source or asOf is missing"},
		{`version: v1.32.13`, `version: v1.31.13`, "is not a version of series 1.32"},
		{`series: "1.30", ends:`, `series: "1.29", ends:`, "support of KUBERNETES_VERSION 1.29 is there twice"},
		{`ends: "2026-06-28"`, `ends: "2026-06-31"`, "is not a day"},
		{"take: [{version: v0.5.13}]", "take: [{version: v0.5.12}]", "v0.5.12, which is to be taken, has it"},
		{"seen: a talosconfig without", "seen: a kubeconfig without", "nothing looks for"},
		{"component: CILIUM_VERSION\n    series", "component: CALICO_VERSION\n    series", `"CALICO_VERSION" is not a component`},
	} {
		text := strings.Replace(string(tableInside), tt.from, tt.to, 1)
		if text == string(tableInside) {
			t.Errorf("the table has no %q", tt.from)
		}
		if _, err := ParseTable([]byte(text)); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("with %q: %v does not say %q", tt.to, err, tt.says)
		}
	}
}

// TestAlias: current is the newest month, and never the name that is written into a configuration.
func TestAlias(t *testing.T) {
	table := Shipped()
	set, known := table.Set(CurrentSet)
	if !known || set.Name != "2026-11" {
		t.Errorf("current is %q", set.Name)
	}
	older := *table
	older.Sets = slices.DeleteFunc(slices.Clone(table.Sets), func(s VersionSet) bool { return s.Name == "2026-11" })
	if set, _ := older.Set(CurrentSet); set.Name != "2026-09" {
		t.Errorf("in an older table current is %q", set.Name)
	}
	c := Defaults()
	if err := set.Apply(&c, func(Variable) bool { return false }); err != nil || c.Versions != "2026-11" {
		t.Errorf("%v: a configuration with current names %q", err, c.Versions)
	}
	for versions, want := range map[string]string{"": "guide", CurrentSet: "2026-09", "2026-11": "2026-11"} {
		if got := table.EarlierSet(versions); got != want {
			t.Errorf("an older release meant %q by %q, want %q", got, versions, want)
		}
	}
}

// withDefault is the shipped table with another set for new clusters.
func withDefault(t *testing.T, set string) *Table {
	t.Helper()
	table := *Shipped()
	table.Default = set
	if problems := table.problems(); len(problems) > 0 {
		t.Fatal(problems)
	}
	return &table
}

// TestDefaultOfATable: a configuration has the versions of its table, and what is known of them is that table's.
func TestDefaultOfATable(t *testing.T) {
	c := DefaultsOf(withDefault(t, "2026-09"))
	if c.Versions != "2026-09" || c.CAPIVersion != "v1.10.10" || c.KubernetesVersion != "v1.33.13" {
		t.Errorf("got %s: %s, %s", c.Versions, c.CAPIVersion, c.KubernetesVersion)
	}
	if errs := c.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
	if Defaults().Versions != Shipped().Default {
		t.Errorf("the default is %s", Defaults().Versions)
	}
	data, err := json.Marshal(c)
	if err != nil || strings.Contains(string(data), "compatibility") {
		t.Errorf("%v: a configuration carries its table with it: %s", err, data)
	}
	none := withDefault(t, "guide")
	none.Flaws, none.Newest, none.Support = nil, nil, nil
	if all := DefaultsOf(none).Remarks(time.Now()); len(all) > 0 {
		t.Errorf("remarks of another table: %v", all)
	}
}

// TestAge: an old table says so.
func TestAge(t *testing.T) {
	day := Shipped().AsOf.Time
	if says := Shipped().Age(day.AddDate(0, 0, 90)); says != "the table of versions is of "+Shipped().AsOf.String() {
		t.Error(says)
	}
	if says := Shipped().Age(day.AddDate(0, 0, 91)); !strings.Contains(says, "91 days old") ||
		!strings.Contains(says, "a newer release has a newer one") {
		t.Error(says)
	}
}

// TestServedVersions: nothing is claimed of a series that the table does not list.
func TestServedVersions(t *testing.T) {
	for version, want := range map[string][]string{"v1.10.10": {"v1beta1"}, "v1.13.6": {"v1beta1", "v1beta2"},
		"v1.16.0": nil, "newest": nil} {
		if got := Shipped().ServedVersions("CAPI_VERSION", version); !slices.Equal(got, want) {
			t.Errorf("Cluster API %s serves %v, want %v", version, got, want)
		}
	}
	for version, want := range map[string][]string{"v1.0.7": {"v1beta1"}, "v1.1.8": {"v1beta1"}, "v1.2.0": nil} {
		if got := Shipped().ServedVersions("CAPH_VERSION", version); !slices.Equal(got, want) {
			t.Errorf("CAPH %s serves %v, want %v", version, got, want)
		}
	}
}
