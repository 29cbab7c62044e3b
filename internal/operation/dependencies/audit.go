package dependencies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// FindingKind is what is wrong.
type FindingKind string

// The kinds of findings. Of the first four the expected list can be what is to be changed.
const (
	AddedEdge    FindingKind = "added dependency"          // there, and not expected
	MissingEdge  FindingKind = "missing dependency"        // expected, and not there
	Unlisted     FindingKind = "not in the list"           // an object that the expected list does not have
	Gone         FindingKind = "listed only"               // an object that is only in the expected list
	NotThere     FindingKind = "dependency does not exist" // Flux waits for it for good
	Cycle        FindingKind = "cycle"                     // none of the objects is ever reconciled
	Duplicate    FindingKind = "duplicate"                 // an object or a dependency is there twice
	LongerInside FindingKind = "inner wait too long"       // the outer one ends before it
)

// ofTheList are the findings that another expected list would not have.
func (k FindingKind) ofTheList() bool {
	return slices.Contains([]FindingKind{AddedEdge, MissingEdge, Unlisted, Gone}, k)
}

// Finding is a difference between what is and what is expected, or what cannot work.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Object string      `json:"object"`
	Place  string      `json:"place,omitempty"` // file:line
	Says   string      `json:"says"`
}

// Unknown is a wait of which the objects do not say how long it takes.
type Unknown struct {
	Object string `json:"object"`
	Says   string `json:"says"`
}

// Report is the result of an audit.
type Report struct {
	Kind         string    `json:"kind"` // "dependencies"
	Source       string    `json:"source"`
	Expected     string    `json:"expected"` // the file of the list
	Objects      int       `json:"objects"`
	Dependencies int       `json:"dependencies"`
	Ignored      int       `json:"ignored"` // documents of other kinds
	Written      bool      `json:"written"` // the list was written from what is
	Findings     []Finding `json:"findings"`
	Unknown      []Unknown `json:"unknown"`
}

// Audit compares a tree with the expected list of a file.
func Audit(t *Tree, e *Expected, file string) Report {
	r := Report{Kind: "dependencies", Source: t.Source, Expected: file, Objects: len(t.Objects), Dependencies: t.Edges(),
		Ignored: t.Ignored, Findings: []Finding{}, Unknown: append([]Unknown{}, t.notes...)}
	all := t.first()
	r.duplicates(t, all)
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		r.compare(all[key], e, file)
		for _, on := range slices.Compact(slices.Clone(all[key].DependsOn)) {
			if all[on] == nil {
				r.find(NotThere, all[key], "it depends on %s, and there is none%s", on, similar(on, all))
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(e.DependsOn), compareKeys) {
		if all[key] == nil {
			r.Findings = append(r.Findings, Finding{Gone, key.String(), e.place(file, key), "the list has it, and it is not there"})
		}
	}
	for _, cycle := range cycles(all) {
		var path []string
		for _, key := range append(cycle, cycle[0]) {
			path = append(path, key.Namespace+"/"+key.Name)
		}
		r.find(Cycle, all[cycle[0]], "each waits for the next: %s", strings.Join(path, " → "))
	}
	r.waits(t, all)
	return r
}

func (r *Report) find(kind FindingKind, o *Object, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{kind, o.Key.String(), o.Place, fmt.Sprintf(format, args...)})
}

// compare compares an object with its entry in the list.
func (r *Report) compare(o *Object, e *Expected, file string) {
	expected, listed := e.DependsOn[o.Key]
	if !listed {
		r.find(Unlisted, o, "%s does not have it", file)
		return
	}
	for _, on := range slices.Compact(slices.SortedFunc(slices.Values(o.DependsOn), compareKeys)) {
		if !slices.Contains(expected, on) {
			r.find(AddedEdge, o, "it depends on %s, which %s does not expect", on, e.place(file, o.Key))
		}
	}
	for _, on := range expected {
		if !slices.Contains(o.DependsOn, on) {
			r.find(MissingEdge, o, "it does not depend on %s, which %s expects", on, e.place(file, o.Key))
		}
	}
}

// duplicates finds objects and dependencies that are there twice.
func (r *Report) duplicates(t *Tree, all map[Key]*Object) {
	for i := range t.Objects {
		o := &t.Objects[i]
		if first := all[o.Key]; first != o {
			r.find(Duplicate, o, "it is there already: %s", cmp.Or(first.Place, "an object of the cluster"))
		}
		for n, on := range o.DependsOn {
			if slices.Index(o.DependsOn, on) < n {
				r.find(Duplicate, o, "spec.dependsOn[%d] is there already: %s", n, on)
			}
		}
	}
}

// place is the line of an entry.
func (e *Expected) place(file string, key Key) string {
	if line := e.lines[key]; line > 0 {
		return fmt.Sprintf("%s:%d", file, line)
	}
	return file
}

// similar names an object of the same name in another namespace, or of the other kind.
func similar(missing Key, all map[Key]*Object) string {
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		switch {
		case key.Name != missing.Name:
		case key.Kind == missing.Kind:
			return fmt.Sprintf(" (there is %s: name its namespace)", key)
		case key.Namespace == missing.Namespace:
			return fmt.Sprintf(" (there is %s: a %s can depend on its own kind only)", key, missing.Kind)
		}
	}
	return ""
}

// Drift reports whether there are findings; after the list was written, others than those of the list.
func (r Report) Drift() error {
	n := 0
	for _, f := range r.Findings {
		if !r.Written || !f.Kind.ofTheList() {
			n++
		}
	}
	switch {
	case n == 0:
		return nil
	case r.Written:
		return fmt.Errorf("%s was written, and %s that no list changes", r.Expected, text.Plural(n, "finding is left",
			"findings are left"))
	}
	return fmt.Errorf("the dependencies of %s are not as %s expects: %s", r.Source, r.Expected,
		text.Plural(n, "finding", "findings"))
}
