package redact

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/flow"
)

// plainJournal knows whole snapshots only.
type plainJournal struct{ flow.Journal }

// No secret reaches a journal, as a snapshot or as a change, and whether or not it can append.
func TestJournalHides(t *testing.T) {
	for name, kept := range map[string]flow.Journal{"appends": flow.Memory(), "snapshots only": plainJournal{flow.Memory()}} {
		t.Run(name, func(t *testing.T) {
			j := Journal{Journal: kept, Hide: hiding()}
			of := func(step string) flow.Snapshot {
				return flow.Snapshot{Format: flow.Format, Graph: "test", Steps: map[string]flow.Record{
					step: {State: flow.StateFailed, Said: "got " + secret, Error: "refused " + secret}}}
			}
			if err := j.Save(t.Context(), of("saved")); err != nil {
				t.Fatal(err)
			}
			if err := flow.Append(t.Context(), j, of("appended")); err != nil {
				t.Fatal(err)
			}
			s, err := j.Load(t.Context())
			if err != nil || len(s.Steps) != 2 {
				t.Fatalf("%+v, %v", s, err)
			}
			for step, rec := range s.Steps {
				if strings.Contains(rec.Said+rec.Error, secret) || !strings.Contains(rec.Error, "[hidden]") {
					t.Errorf("%s: %+v", step, rec)
				}
			}
		})
	}
}
