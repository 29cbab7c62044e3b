package forecast

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/connect"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/settings"
	"github.com/slipway-k8s/slipway/platform"
)

// Origin tells where a value comes from, and whether the operator wrote it.
func Origin(c settings.Configuration, field string) (place string, written bool) {
	place, given := c.Places[field]
	if !given {
		return c.Place(field), false
	}
	return place, place != settings.LabPlace
}

// Comparison is the configuration held against a cluster that manages itself.
type Comparison struct {
	Deviations []changes.Deviation `json:"deviations,omitempty"`
	// Refused reports that a run of these targets would be refused, because of those that are requests.
	Refused bool `json:"refused,omitempty"`
	// Applies reports that a run of these targets first brings the requests to the cluster, as apply does.
	Applies bool `json:"applies,omitempty"`
	// Uncompared is why they are not known.
	Uncompared string `json:"uncompared,omitempty"`
	// Err is what Uncompared is the text of.
	Err error `json:"-"`
	// Awaited are variables whose values an operation that has not ended brings to the cluster. They are no deviations; a
	// run that asks for them is refused until the operation has ended.
	Awaited []string `json:"awaited,omitempty"`
}

// Compare holds a configuration against the cluster, for a run of targets; nil:
// none is about to begin. What the operations explain that were begun and have
// not ended is no deviation. A cluster that does not answer is no error: the run
// says better what that means.
func Compare(ctx context.Context, b planning.Bootstrap, j flow.Journal, cfg settings.Configuration,
	words []string, unended []unfinished.Operation) (out Comparison) {
	all, managed, err := compare(ctx, b, j, cfg)
	if err != nil {
		out.Uncompared, out.Err = err.Error(), err
	}
	requests := changes.RequestedDeviations(all)
	out.Applies = err == nil && managed && slices.Equal(words, []string{"all"}) && applies(requests, unended)
	out.Refused = words != nil && wholeCluster(words) && len(requests) > 0 && !out.Applies
	for _, d := range all {
		switch explained := slices.ContainsFunc(unended, func(o unfinished.Operation) bool { return o.Explains(d) }); {
		case !explained:
			out.Deviations = append(out.Deviations, d)
		case d.Requested:
			out.Awaited = append(out.Awaited, d.Variable)
		}
	}
	return out
}

// applies tells whether apply brings the requests to a cluster that manages itself, or resumes a change that it began:
// not one that is impossible, and not while another operation that was begun is to bring one of them.
func applies(requests []changes.Deviation, unended []unfinished.Operation) bool {
	if slices.ContainsFunc(requests, func(d changes.Deviation) bool { return !d.Possible() }) {
		return false
	}
	some := len(requests) > 0
	for _, o := range unended {
		switch {
		case o.ResumedBy([]string{unfinished.Apply}):
			some = true
		case slices.ContainsFunc(requests, o.Explains):
			return false
		}
	}
	return some
}

// compare asks the cluster, and tells whether it manages itself. Before the pivot, when a run applies the manifests,
// only numbers of servers can differ without that the next run says so.
func compare(ctx context.Context, b planning.Bootstrap, j flow.Journal,
	cfg settings.Configuration) (found []changes.Deviation, managed bool, err error) {
	passed, err := b.Plan.PivotPassed(ctx, j)
	if err != nil {
		return nil, false, err
	}
	recorded, err := j.Load(ctx)
	if err != nil {
		return nil, passed, err
	}
	origin := func(field string) (place string, written bool) { return Origin(cfg, field) }
	if !passed {
		if recorded.Steps[b.Plan.Cluster.Name()].State != flow.StateDone {
			return nil, false, nil
		}
		manager, err := connect.Cluster(b.Tools, platform.ManagementKubeconfig)
		if err != nil {
			return nil, false, nil // the run says it better
		}
		found, _ = changes.DeviatingCounts(ctx, b.Cfg, b.Tools, manager, false, recorded, origin)
		return found, false, nil
	}
	if found, err = changes.FindDeviations(ctx, b.Cfg, b.Tools, b.Sources, recorded, origin); err != nil {
		return nil, true, err
	}
	self, err := connect.Cluster(b.Tools, platform.Kubeconfig)
	if err != nil {
		return found, true, err
	}
	counts, err := changes.DeviatingCounts(ctx, b.Cfg, b.Tools, self, true, recorded, origin)
	return append(found, counts...), true, err
}

// wholeCluster reports whether targets ask for the cluster as it is configured.
// Those of single steps ask for no more than these do.
func wholeCluster(words []string) bool {
	return len(words) == 0 || slices.Contains(words, "bootstrap") || slices.Contains(words, "all")
}

// The first lines of the parts of a comparison.
const (
	RequestsHead = "the cluster manages itself, and this run brings none of these values of the configuration to it:"
	AppliesHead  = "the run first brings these values of the configuration to the cluster, as apply does:"
	DriftHead    = "these values of the cluster were changed since the configuration was last applied:"

	UncomparedHead = "whether the cluster is as it is configured is not known: "

	awaitedText = "the operation that was begun and has not ended brings %s to the cluster: resume it first"
)

// Lines tell a comparison, each deviation in a line of its own.
func (c Comparison) Lines() (lines []string) {
	if c.Uncompared != "" {
		lines = append(lines, UncomparedHead+text.Printable(c.Uncompared))
	}
	if c.Refused && len(c.Awaited) > 0 {
		lines = append(lines, fmt.Sprintf(awaitedText, strings.Join(c.Awaited, ", ")))
	}
	requests := RequestsHead
	if c.Applies {
		requests = AppliesHead
	}
	for _, part := range []struct {
		head      string
		requested bool
	}{{requests, true}, {DriftHead, false}} {
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

// WithoutSecrets hides secrets in everything that is printed.
func (c *Comparison) WithoutSecrets(hide *redact.Redactor) {
	hide.Each(&c.Uncompared)
	for i := range c.Deviations {
		d := &c.Deviations[i]
		hide.Each(&d.Place, &d.Wanted, &d.Live, &d.What, &d.Change, &d.Keep)
	}
}

// Print writes a comparison below a plan.
func (c Comparison) Print(text func(string, ...any)) {
	lines := c.Lines()
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
