package session

import (
	"fmt"
	"iter"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// SkipReasons collects steps that were skipped for the same reason, in the order in which the reasons were met.
type SkipReasons struct {
	order []string
	names map[string][]string
}

// Add adds a step.
func (r *SkipReasons) Add(reason, step string) {
	if r.names == nil {
		r.names = map[string][]string{}
	}
	if r.names[reason] == nil {
		r.order = append(r.order, reason)
	}
	r.names[reason] = append(r.names[reason], step)
}

// All are the reasons with the names of their steps.
func (r *SkipReasons) All() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, reason := range r.order {
			if !yield(reason, r.names[reason]) {
				return
			}
		}
	}
}

// SkippedTogether is about steps that were skipped for one reason.
func SkippedTogether(reason string, names []string) string {
	return fmt.Sprintf("%s skipped: %s: %s", text.Plural(len(names), "step", "steps"), reason, strings.Join(names, ", "))
}
