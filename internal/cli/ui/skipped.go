package ui

import (
	"fmt"
	"strings"

	"github.com/slipway-k8s/slipway/internal/base/text"
)

// reasons collects steps that have the same reason, in the order in which the reasons were met.
type reasons struct {
	order []string
	names map[string][]string
}

func (r *reasons) add(reason, step string) {
	if r.names == nil {
		r.names = map[string][]string{}
	}
	if r.names[reason] == nil {
		r.order = append(r.order, reason)
	}
	r.names[reason] = append(r.names[reason], step)
}

// skippedTogether is about steps that were skipped for one reason.
func skippedTogether(reason string, names []string) string {
	return fmt.Sprintf("%s skipped: %s: %s", text.Plural(len(names), "step", "steps"), reason, strings.Join(names, ", "))
}
