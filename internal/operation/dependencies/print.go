package dependencies

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Print writes the report for people, in a terminal of that width; 0: it is none.
func (r Report) Print(w io.Writer, width int) error {
	var b strings.Builder
	var rows [][]string
	for _, f := range r.Findings {
		if r.Written && f.Kind.ofTheList() {
			continue
		}
		rows = append(rows, []string{text.Printable(f.Object), string(f.Kind), text.Dash(f.Place), text.Printable(f.Says)})
	}
	if len(rows) > 0 {
		text.Table(&b, width, []string{"OBJECT", "FINDING", "PLACE", "WHAT"}, rows...)
		b.WriteByte('\n')
	}
	for _, line := range r.unknownLines() {
		b.WriteString(text.Printable(line) + "\n")
	}
	fmt.Fprintf(&b, "%s with %s, %s, in %s\n", text.Plural(r.Objects, "object", "objects"),
		text.Plural(r.Dependencies, "dependency", "dependencies"),
		text.Plural(r.Ignored, "document of another kind", "documents of other kinds"), text.Printable(r.Source))
	switch {
	case r.Written:
		fmt.Fprintf(&b, "%s was written from it\n", r.Expected)
	case len(r.Findings) == 0:
		fmt.Fprintf(&b, "all is as %s expects\n", r.Expected)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// unknownLines are the waits of which nothing is known, one line for each that is not known.
func (r Report) unknownLines() (lines []string) {
	var said []string
	objects := map[string][]string{}
	for _, u := range r.Unknown {
		if !slices.Contains(said, u.Says) {
			said = append(said, u.Says)
		}
		objects[u.Says] = append(objects[u.Says], u.Object)
	}
	const most = 3
	for _, says := range said {
		all := objects[says]
		line := fmt.Sprintf("not known: %s: %s", says, strings.Join(all[:min(most, len(all))], ", "))
		if len(all) > most {
			line += fmt.Sprintf(" and %d more (--output json has all)", len(all)-most)
		}
		lines = append(lines, line)
	}
	return lines
}
