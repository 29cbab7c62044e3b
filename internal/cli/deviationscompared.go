package cli

import (
	"context"
	"slices"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/steps"
)

// originOf tells where a value comes from, and whether the operator wrote it.
func originOf(c settings.Configuration, field string) (place string, written bool) {
	place, given := c.Places[field]
	if !given {
		return c.Place(field), false
	}
	return place, place != labPlace
}

// compared is the configuration held against a cluster that manages itself.
type compared struct {
	Deviations []steps.Deviation `json:"deviations,omitempty"`
	// Refused tells that a run of these targets would be refused, because of those that are requests.
	Refused bool `json:"refused,omitempty"`
	// Uncompared is why they are not known.
	Uncompared string `json:"uncompared,omitempty"`
}

// compare holds a configuration against the cluster, for a run of targets; nil:
// none is about to begin. A cluster that does not answer is no error: the run
// says better what that means.
func compare(ctx context.Context, plan *steps.Plan, j flow.Journal, cfg settings.Configuration, words []string) (out compared) {
	var err error
	if out.Deviations, err = plan.Deviations(ctx, j, func(field string) (place string, written bool) { return originOf(cfg, field) }); err != nil {
		out.Uncompared = err.Error()
	}
	out.Refused = words != nil && wholeCluster(words) && len(steps.Requested(out.Deviations)) > 0
	return out
}

// wholeCluster tells whether targets ask for the cluster as it is configured.
// Those of single steps ask for no more than these do.
func wholeCluster(words []string) bool {
	return len(words) == 0 || slices.Contains(words, "bootstrap") || slices.Contains(words, "all")
}

// The first lines of the parts of a comparison.
const (
	requestsHead = "the cluster manages itself, and no run brings these values of the configuration to it:"
	driftHead    = "these values of the cluster were changed since the configuration was last applied:"

	uncomparedHead = "whether the cluster is as it is configured is not known: "
)

// lines tell a comparison, each deviation in a line of its own.
func (c compared) lines() (lines []string) {
	if c.Uncompared != "" {
		lines = append(lines, uncomparedHead+text.Printable(c.Uncompared))
	}
	for _, part := range []struct {
		head      string
		requested bool
	}{{requestsHead, true}, {driftHead, false}} {
		head := part.head
		for _, d := range c.Deviations {
			if d.Requested != part.requested {
				continue
			}
			if head != "" {
				lines = append(lines, head)
			}
			head = ""
			lines = append(lines, "- "+text.Printable(d.String()))
		}
	}
	return lines
}

func (c *compared) withoutSecrets(hide *redact.Redactor) {
	hide.Each(&c.Uncompared)
	for i := range c.Deviations {
		d := &c.Deviations[i]
		hide.Each(&d.Place, &d.Wanted, &d.Live, &d.What, &d.Change, &d.Keep)
	}
}

// print writes a comparison below a plan.
func (c compared) print(text func(string, ...any)) {
	lines := c.lines()
	if c.Refused {
		lines = append([]string{"the run would be REFUSED:"}, lines...)
	}
	for i, line := range lines {
		if i == 0 {
			text("")
		}
		text("%s", line)
	}
}

// labPlace is where the values come from that the lab decides.
const labPlace = "the lab"
