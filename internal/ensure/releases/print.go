package releases

import (
	"fmt"
	"io"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// Print writes the report for people, in a terminal of that width; 0: it is none.
func (r Report) Print(w io.Writer, width int) error {
	var b strings.Builder
	if rows := r.rows(); len(rows) > 0 {
		text.Table(&b, width, []string{"HELMRELEASE", "RESULT", "WHY"}, rows...)
		b.WriteByte('\n')
	}
	b.WriteString(r.Summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// rows has a row for each HelmRelease that is not healthy.
func (r Report) rows() (rows [][]string) {
	for _, s := range r.Stuck {
		why := s.Why + "; " + s.What
		if s.Error != "" {
			why += ": " + s.Error
		}
		rows = append(rows, []string{text.Printable(s.Namespace + "/" + s.Name), string(s.Outcome), text.Printable(why)})
	}
	for _, l := range r.Left {
		rows = append(rows, []string{text.Printable(l.Namespace + "/" + l.Name), "left alone", text.Printable(l.Why)})
	}
	return rows
}

// Summary is the report in a sentence.
func (r Report) Summary() string {
	counts := map[Outcome]int{}
	for _, s := range r.Stuck {
		counts[s.Outcome]++
	}
	says := fmt.Sprintf("%s healthy, %d left alone, %d stuck", text.Plural(r.Healthy, "HelmRelease", "HelmReleases"),
		len(r.Left), len(r.Stuck))
	for _, o := range []Outcome{WouldRecover, Recovered, ChangedByOther, Failed, Refused} {
		if counts[o] > 0 {
			says += fmt.Sprintf(", %d %s", counts[o], o)
		}
	}
	return says
}
