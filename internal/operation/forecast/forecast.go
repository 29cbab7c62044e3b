// Package forecast predicts what a run does with each step, what it changes in the cluster, what that costs and how
// long it takes, and how a cluster that manages itself differs from the configuration.
package forecast

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/cluster/changes"
	"github.com/slipway-k8s/slipway/internal/cluster/orders"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/ensure/claims"
	"github.com/slipway-k8s/slipway/internal/operation/unfinished"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// Forecast is what a run would do, in `bootstrap plan --output json`.
type Forecast struct {
	Kind        string                 `json:"kind"` // "plan", to tell it from events
	Cluster     string                 `json:"cluster"`
	Environment string                 `json:"world"`
	State       string                 `json:"state"`
	Offline     string                 `json:"offline,omitempty"` // why Hetzner and the clusters were not asked
	Files       []render.SourceFile    `json:"files"`             // that the cluster is made from
	Remarks     []config.Remark        `json:"remarks,omitempty"` // on the configured versions
	Begun       []unfinished.Operation `json:"begun,omitempty"`   // operations that have not ended
	// Existing is what is known of a cluster of this name that the state folder did not create.
	Existing *claims.ExistingCluster `json:"existing,omitempty"`
	Losses   []string                `json:"losses,omitempty"` // of a restore
	// Unchecked are the charts that would be installed and were not rendered with their values, and why.
	Unchecked []string `json:"unchecked,omitempty"`
	Steps     []Step   `json:"steps"`
	Comparison
	Bill     *orders.Bill `json:"bill,omitempty"`   // nil: Hetzner could not be asked
	Unpriced string       `json:"noBill,omitempty"` // why

	// Consequences are what becomes of the cluster that exists.
	Consequences []changes.Consequence `json:"consequences,omitempty"`
	NeedsConsent bool                  `json:"needsConsent,omitempty"` // some of them are done with consent only
	// some of them cannot be done, so the run fails
	Refused    bool   `json:"refused,omitempty"`
	Unforeseen string `json:"noConsequences,omitempty"` // why they are not known

	Expected     time.Duration `json:"expectedNs"` // of the whole run, if nothing holds it up
	CriticalPath []string      `json:"criticalPath"`
	BuiltIn      bool          `json:"builtIn"` // some of the expectation is no record
}

// Step is one step of a forecast.
type Step struct {
	Step     string               `json:"step"`
	Doc      string               `json:"doc,omitempty"`
	Would    flow.Action          `json:"would"`
	Why      string               `json:"why,omitempty"`
	Changes  []changes.Difference `json:"changes,omitempty"`
	Expected time.Duration        `json:"expectedNs,omitempty"`
	BuiltIn  bool                 `json:"builtIn,omitempty"` // Expected is no record
	Critical bool                 `json:"critical,omitempty"`
}

// WithoutSecrets hides secrets in everything that is printed.
func (f *Forecast) WithoutSecrets(hide *redact.Redactor) {
	f.Comparison.WithoutSecrets(hide)
	hide.Each(&f.Offline, &f.Unpriced, &f.Unforeseen)
	if f.Existing != nil {
		hide.Each(&f.Existing.Sentence)
	}
	for i := range f.Begun {
		hide.Each(&f.Begun[i].Sentence)
	}
	for i := range f.Consequences {
		c := &f.Consequences[i]
		hide.Each(&c.Text)
		for j := range c.Why {
			hide.Each(&c.Why[j])
		}
	}
	for i := range f.Losses {
		hide.Each(&f.Losses[i])
	}
	for i := range f.Unchecked {
		hide.Each(&f.Unchecked[i])
	}
	for i := range f.Steps {
		hide.Each(&f.Steps[i].Why)
		for j := range f.Steps[i].Changes {
			d := &f.Steps[i].Changes[j]
			hide.Each(&d.Was, &d.Is, &d.Note)
		}
	}
	if f.Bill != nil {
		for i := range f.Bill.Notes {
			hide.Each(&f.Bill.Notes[i])
		}
	}
}

// source is a plan of which a forecast is made.
type source interface {
	Explain(flow.Change) []changes.Difference
	Consequences(context.Context, []flow.Prediction) ([]changes.Consequence, error)
	Bill(context.Context, []flow.Prediction, []changes.Consequence) (orders.Bill, error)
}

// Ask asks what a run of a graph would do, and make.
func (f *Forecast) Ask(ctx context.Context, plan source, graph *flow.Graph, j flow.Journal, targets []string,
	took runs.Durations) error {
	foreseen, err := graph.Predict(ctx, j, targets, f.Offline == "")
	if err != nil {
		return err
	}
	if f.Existing != nil && f.Existing.Refused {
		refuseAt(claims.Step, graph.Steps(), foreseen)
	}
	if f.Unpriced = f.Offline; f.Offline == "" {
		f.addConsequences(ctx, plan, foreseen)
		if bill, err := plan.Bill(ctx, foreseen, f.Consequences); err != nil {
			f.Unpriced = err.Error()
		} else {
			f.Bill = &bill
		}
		f.adopt(ctx, plan, foreseen)
	}
	f.NeedsConsent, f.Refused = f.NeedsConsent || f.Applies, f.Refused || f.Comparison.Refused
	f.add(plan, graph, foreseen, took)
	return nil
}

// adopter is a source that knows which steps of a run find all that they would create.
type adopter interface {
	Adopts(context.Context, *claims.ExistingCluster, *orders.Bill, bool) map[string]bool
}

// adopt says of the steps of a run that takes a cluster over which of them find what exists, and change nothing.
func (f *Forecast) adopt(ctx context.Context, plan source, foreseen []flow.Prediction) {
	by, ok := plan.(adopter)
	if !ok || f.Existing == nil || f.Existing.Refused {
		return
	}
	adopts := by.Adopts(ctx, f.Existing, f.Bill, len(f.Consequences) == 0 && f.Unforeseen == "")
	for i := range foreseen {
		switch p := &foreseen[i]; {
		case p.Action != flow.ActionRun:
		case p.Name == claims.Step:
			p.Why = "it takes the reservation of the name over"
		case slices.Contains(steps.ReadOnlySteps(), p.Name) && adopts[p.Name]:
			p.Action, p.Why = flow.ActionAdopt, "it only looks: nothing is created"
		case adopts[p.Name]:
			p.Action, p.Why = flow.ActionAdopt, "what it would create exists: it is found, and nothing is created"
		}
	}
}

// refuseAt says of a step that it fails, and of those that come after it that they are not reached.
func refuseAt(step string, graph []flow.Info, foreseen []flow.Prediction) {
	after := map[string]bool{step: true}
	for _, info := range graph { // each after what it comes after
		after[info.Name] = after[info.Name] || slices.ContainsFunc(info.Behind,
			func(l flow.Link) bool { return after[l.Step] })
	}
	for i := range foreseen {
		switch p := &foreseen[i]; {
		case p.Name == step && p.Action == flow.ActionRun:
			p.Action, p.Why = flow.ActionRefuse, "the cluster is not this state folder's"
		case after[p.Name] && (p.Action == flow.ActionRun || p.Action == flow.ActionMayRun):
			p.Action, p.Why = flow.ActionNotReached, step+" fails"
		}
	}
}

// add fills in the steps and what they are expected to take.
func (f *Forecast) add(plan source, graph *flow.Graph, foreseen []flow.Prediction, took runs.Durations) {
	takes := map[string]time.Duration{}
	rollout := f.rollout()
	for _, s := range foreseen {
		row := Step{Step: s.Name, Doc: s.Doc, Would: s.Action, Why: s.Why}
		takes[s.Name] = 0
		if s.Action == flow.ActionRun || s.Action == flow.ActionMayRun {
			expected, recorded := took.Of(s.Name)
			if rollout > 0 && slices.Contains(steps.WaitForServers(), s.Name) {
				expected, recorded = expected+rollout, recorded && took.Measured
			}
			row.Expected, row.BuiltIn = expected, !recorded
			takes[s.Name] = expected
			f.BuiltIn = f.BuiltIn || !recorded
		}
		if s.Action == flow.ActionRun {
			for _, change := range s.Changes {
				row.Changes = append(row.Changes, plan.Explain(change)...)
			}
		}
		f.Steps = append(f.Steps, row)
	}
	f.CriticalPath, f.Expected = runs.CriticalPath(graph.Steps(), takes)
	critical := map[string]bool{}
	for _, name := range f.CriticalPath {
		critical[name] = true
	}
	for i, s := range f.Steps {
		f.Steps[i].Critical = critical[s.Step]
	}
}

// Runs are the names of the steps that would run, or may.
func (f Forecast) Runs() []string {
	var names []string
	for _, s := range f.Steps {
		if s.Would == flow.ActionRun || s.Would == flow.ActionMayRun {
			names = append(names, s.Step)
		}
	}
	return names
}

// Print writes the plan, in lines of the terminal's width where there is one.
func (f Forecast) Print(out io.Writer, width int) error {
	w := &strings.Builder{}
	words := func(format string, args ...any) {
		for _, line := range text.Within(fmt.Sprintf(format, args...), width-1) {
			fmt.Fprintln(w, line)
		}
	}
	where := "at Hetzner Cloud"
	if f.Environment == statedir.EnvironmentLab {
		where = "in the lab"
	}
	for _, o := range f.Begun {
		words("%s", text.Printable(o.String()))
	}
	if f.Existing != nil {
		if f.Existing.Refused {
			words("the run would be REFUSED:")
		}
		words("%s", text.Printable(f.Existing.Sentence))
	}
	words("plan for cluster %s %s; state: %s", f.Cluster, where, f.State)
	if f.Offline != "" {
		words("Hetzner and the clusters were not asked: %s", text.Printable(f.Offline))
	}
	if line := UsedFiles(f.Files); line != "" {
		words("%s", text.Printable(line))
	}
	for _, r := range f.Remarks {
		words("known: %s", text.Printable(r.String()))
	}
	for _, loss := range f.Losses {
		words("%s", text.Printable(loss))
	}
	var rows [][]string
	passedAt := 0
	var passed []string // the steps that are passed over have one row
	for _, s := range f.Steps {
		why := s.why()
		if s.Would == flow.ActionSkip && len(s.Changes) == 0 {
			if passed = append(passed, s.Step); len(passed) == 1 {
				passedAt, rows = len(rows), append(rows, nil)
			}
			rows[passedAt] = []string{text.Plural(len(passed), "step", "steps"), s.verb(), s.expected(),
				why + ": " + strings.Join(passed, ", ")}
			continue
		}
		for _, d := range s.Changes[min(1, len(s.Changes)):] {
			why += "\n" + text.Printable(d.String())
		}
		rows = append(rows, []string{s.Step, s.verb(), s.expected(), why})
	}
	fmt.Fprintln(w)
	text.Table(w, width, []string{"STEP", "WOULD", "EXPECTED", "WHY"}, rows...)
	for _, chart := range f.Unchecked {
		words("not checked: %s", text.Printable(chart))
	}
	f.Comparison.Print(words)
	f.printConsequences(w, words)
	f.printTime(w, words)
	f.printBill(w, width, words)
	_, err := io.WriteString(out, w.String())
	return err
}

// verb is the word of the table.
func (s Step) verb() string {
	switch s.Would {
	case flow.ActionReuse:
		return "be reused"
	case flow.ActionMayRun:
		return "may run"
	case flow.ActionSkip:
		return "be passed over"
	case flow.ActionAdopt:
		return "adopt"
	case flow.ActionRefuse, flow.ActionUnknown:
		return "FAIL"
	case flow.ActionNotReached:
		return "not be reached"
	default:
		return string(s.Would)
	}
}

// expected is marked where it is no record, and where it is on the critical path.
func (s Step) expected() string {
	if s.Would != flow.ActionRun && s.Would != flow.ActionMayRun {
		return "-"
	}
	text := text.Elapsed(s.Expected)
	if s.BuiltIn {
		text = "~" + strings.Replace(text, ".0s", "s", 1) // no tenths in what is guessed
	}
	if s.Critical {
		text += " *"
	}
	return text
}

// why is the first difference where a step is changed: the others follow in
// lines of their own.
func (s Step) why() string {
	if len(s.Changes) == 0 {
		return text.Printable(s.Why)
	}
	changed := "changed: " + text.Printable(s.Changes[0].String())
	if strings.HasPrefix(s.Why, "changed: ") {
		return changed
	}
	return text.Printable(s.Why) + "; " + changed
}

func (f Forecast) printTime(w io.Writer, words func(string, ...any)) {
	fmt.Fprintln(w)
	if len(f.Runs()) == 0 {
		words("nothing is to be done")
		return
	}
	words("expected: %s along %s (*)", text.Elapsed(f.Expected), strings.Join(f.CriticalPath, ", "))
	if rollout := f.rollout(); rollout > 0 &&
		!slices.ContainsFunc(f.Runs(), func(s string) bool { return slices.Contains(steps.WaitForServers(), s) }) {
		words("the run does not wait for the servers, which takes about %s more: wait-nodes does", config.Duration(rollout))
	}
	if f.BuiltIn {
		words("~: a built-in figure, there is no record of an earlier run of the step in this state folder")
	}
}

func (f Forecast) printBill(w io.Writer, width int, words func(string, ...any)) {
	fmt.Fprintln(w)
	if f.Bill == nil {
		words("what will be created and what it costs is not known: %s", text.Printable(f.Unpriced))
		return
	}
	if len(f.Bill.New) == 0 {
		f.printNothingNew(words)
		return
	}
	var rows [][]string
	for _, o := range f.Bill.New {
		price := o.Price.String()
		if o.Each.Monthly > 0 {
			price = fmt.Sprintf("%.4f %s a GB", o.Each.Monthly, o.Each.Currency)
		}
		rows = append(rows, []string{text.Plural(o.Count, string(o.Kind), string(o.Kind)+"s"), text.Dash(o.Type),
			text.Dash(o.Location), text.Printable(o.Name), price})
	}
	text.Table(w, width, []string{"NEW", "TYPE", "LOCATION", "NAME", "A MONTH"}, rows...)
	fmt.Fprintln(w)
	besides := ""
	if f.Bill.Monthly.Unknown {
		besides = ", besides what has no monthly price in the list"
	}
	words("together %.2f %s a month more, VAT included%s", f.Bill.Monthly.Monthly, f.Bill.Monthly.Currency, besides)
	if change := f.priceChange(); change != "" {
		words("the changes to the cluster: %s", change)
	}
	for _, n := range f.Bill.Notes {
		words("%s", text.Printable(n))
	}
}

// Changes reports whether the run would do more than look.
func (f Forecast) Changes() bool {
	return f.Applies || slices.ContainsFunc(f.Runs(), func(step string) bool {
		return !slices.Contains(steps.ReadOnlySteps(), step)
	})
}

// Total says that the sum is not all where a price is unknown.
func Total(p hetzner.Price) string {
	sum := fmt.Sprintf("%.2f %s", p.Monthly, p.Currency)
	if p.Unknown {
		return sum + " and what has no price in Hetzner's list"
	}
	return sum
}

// Summary says in a few words what the run does.
func (f *Forecast) Summary() string {
	begun, run := false, len(f.Runs())
	for _, s := range f.Steps {
		begun = begun || s.Would == flow.ActionSkip || s.Would == flow.ActionReuse
	}
	switch {
	case f.Existing != nil && f.Existing.Refused:
		return "is refused: the cluster is not this state folder's"
	case f.Comparison.Refused:
		return "is refused: the cluster manages itself, and the run does not bring it to the changed configuration"
	case f.Refused:
		return "is refused: an immutable field is changed"
	case f.Applies:
		return fmt.Sprintf("applies the changed configuration, and runs %d steps", run)
	case run == 0:
		return "nothing"
	case f.NeedsConsent:
		return fmt.Sprintf("runs %d steps, and replaces or deletes something", run)
	case !begun:
		return "creates the cluster"
	}
	return fmt.Sprintf("runs %d steps", run)
}
