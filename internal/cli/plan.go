package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/render"
	"github.com/slipway-k8s/slipway/internal/runs"
	"github.com/slipway-k8s/slipway/internal/settings"
	"github.com/slipway-k8s/slipway/internal/statedir"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// forecast is what a run would do, in `bootstrap plan --output json`.
type forecast struct {
	Kind    string              `json:"kind"` // "plan", to tell it from events
	Cluster string              `json:"cluster"`
	World   string              `json:"world"`
	State   string              `json:"state"`
	Offline string              `json:"offline,omitempty"` // why the world was not asked
	Files   []render.SourceFile `json:"files"`             // that the cluster is made from
	Losses  []string            `json:"losses,omitempty"`  // of a restore
	Steps   []forecastStep      `json:"steps"`
	compared
	Bill     *steps.Bill `json:"bill,omitempty"`   // nil: Hetzner could not be asked
	Unpriced string      `json:"noBill,omitempty"` // why

	// Consequences are what becomes of the cluster that exists.
	Consequences []steps.Consequence `json:"consequences,omitempty"`
	NeedsConsent bool                `json:"needsConsent,omitempty"`   // some of them are done with consent only
	Refused      bool                `json:"refused,omitempty"`        // some of them cannot be done, so the run fails
	Unforeseen   string              `json:"noConsequences,omitempty"` // why they are not known

	Expected     time.Duration `json:"expectedNs"` // of the whole run, if nothing holds it up
	CriticalPath []string      `json:"criticalPath"`
	BuiltIn      bool          `json:"builtIn"` // some of the expectation is no record
}

// forecastStep is one step of a forecast.
type forecastStep struct {
	Step     string             `json:"step"`
	Doc      string             `json:"doc,omitempty"`
	Would    flow.Action        `json:"would"`
	Why      string             `json:"why,omitempty"`
	Changes  []steps.Difference `json:"changes,omitempty"`
	Expected time.Duration      `json:"expectedNs,omitempty"`
	BuiltIn  bool               `json:"builtIn,omitempty"` // Expected is no record
	Critical bool               `json:"critical,omitempty"`
}

// runPlan prints what a run with these targets would do. It changes nothing.
func runPlan(ctx context.Context, c *console, a arguments) error {
	if len(a.Targets) > 0 && a.Targets[0] == "plan" { // with -n the targets are the run's own
		a.Targets = a.Targets[1:]
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	if _, err := rehearseOnPaper(ctx, c, a, cfg); err != nil {
		return err
	}
	if err := sameWorld(ctx, c, a, cfg); err != nil {
		return err
	}
	if err := notReal(ctx, c, a, cfg); err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	cfg, tools, offline, err := foreseeingTools(ctx, c, a.Options, cfg, state)
	if err != nil {
		return err
	}
	f := forecast{Kind: "plan", Cluster: cfg.ClusterName, World: worldOf(a.Options), State: string(state), Offline: offline}
	if err := f.foresee(ctx, cfg, tools, state, a.Targets); err != nil {
		return err
	}
	return tellForecast(c, f, a.Options.Output)
}

// tellForecast prints a forecast, without the secrets that others may have
// repeated.
func tellForecast(c *console, f forecast, output string) error {
	f.withoutSecrets(c.hide)
	if output == "json" {
		return ui.PrintJSON(c.stdout, f)
	}
	return f.print(c.stdout, c.width())
}

func (f *forecast) withoutSecrets(hide *redact.Redactor) {
	f.compared.withoutSecrets(hide)
	hide.Each(&f.Offline, &f.Unpriced, &f.Unforeseen)
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

// foresee asks the journal and the world what a run of targets, as they were
// written, would do.
func (f *forecast) foresee(ctx context.Context, cfg settings.Configuration, tools platform.Tools, state statedir.Dir, words []string) error {
	took := runs.ReadDurations(state, f.World)
	tools.ServerTakes = took.Server()
	plan, err := steps.New(cfg.Config, tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	targets, err := targetsNow(ctx, plan, state.Journal(), words)
	if err != nil {
		return err
	}
	f.Files = plan.Files()
	if f.Offline == "" {
		f.compared = compare(ctx, plan, state.Journal(), cfg, append([]string{}, words...))
	}
	return f.ask(ctx, plan, plan.Graph, state.Journal(), targets, took)
}

// foreseeable is a plan of which a forecast is made.
type foreseeable interface {
	Explain(flow.Change) []steps.Difference
	Consequences(context.Context, []flow.Prediction) ([]steps.Consequence, error)
	Bill(context.Context, []flow.Prediction, []steps.Consequence) (steps.Bill, error)
}

// ask asks what a run of a graph would do, and make.
func (f *forecast) ask(ctx context.Context, plan foreseeable, graph *flow.Graph, j flow.Journal, targets []string, took runs.Durations) error {
	foreseen, err := graph.Predict(ctx, j, targets, f.Offline == "")
	if err != nil {
		return err
	}
	if f.Offline == "" {
		f.foreseeConsequences(ctx, plan, foreseen)
	}
	f.add(plan, graph, foreseen, took)
	f.Unpriced = f.Offline
	if f.Offline != "" {
		return nil
	}
	bill, err := plan.Bill(ctx, foreseen, f.Consequences)
	if err != nil {
		f.Unpriced = err.Error()
		return nil
	}
	f.Bill = &bill
	return nil
}

// notReal refuses to compare the state of a real cluster with the lab.
func notReal(ctx context.Context, c *console, a arguments, cfg settings.Configuration) error {
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	world, err := state.World()
	if err == nil && world == statedir.WorldHetzner && a.Options.Lab {
		return usage.Errorf("%s holds the state of a real cluster: leave --lab away, or name another folder (--state-dir)", state)
	}
	return err
}

// foreseeingTools are tools to look at the world that a run would work in, also
// before the first one. Where it cannot be asked, offline says why.
func foreseeingTools(ctx context.Context, c *console, o options, cfg settings.Configuration, state statedir.Dir) (settings.Configuration, platform.Tools, string, error) {
	cfg, tools, offline, err := lookingTools(ctx, c, o, cfg, state)
	if err != nil || tools.Hetzner != nil {
		return cfg, tools, offline, err
	}
	if o.Lab {
		snapshot, err := state.Journal().Load(ctx)
		if err == nil && len(snapshot.Steps) > 0 {
			err = fmt.Errorf("%s: without it the plan would compare what was made in the lab with what is configured for Hetzner", offline)
		}
		return cfg, tools, offline, err
	}
	tools, offline, err = hetznerTools(ctx, c, cfg, tools)
	return cfg, tools, offline, err
}

// add fills in the steps and what they are expected to take.
func (f *forecast) add(plan foreseeable, graph *flow.Graph, foreseen []flow.Prediction, took runs.Durations) {
	takes := map[string]time.Duration{}
	rollout := f.rollout()
	for _, s := range foreseen {
		row := forecastStep{Step: s.Name, Doc: s.Doc, Would: s.Action, Why: s.Why}
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

// runs are the names of the steps that would run, or may.
func (f forecast) runs() []string {
	var names []string
	for _, s := range f.Steps {
		if s.Would == flow.ActionRun || s.Would == flow.ActionMayRun {
			names = append(names, s.Step)
		}
	}
	return names
}

// print writes the plan, in lines of the terminal's width where there is one.
func (f forecast) print(out io.Writer, width int) error {
	w := &strings.Builder{}
	words := func(format string, args ...any) {
		for _, line := range text.Within(fmt.Sprintf(format, args...), width-1) {
			fmt.Fprintln(w, line)
		}
	}
	where := "at Hetzner Cloud"
	if f.World == statedir.WorldLab {
		where = "in the lab"
	}
	words("plan for cluster %s %s; state: %s", f.Cluster, where, f.State)
	if f.Offline != "" {
		words("the world was not asked: %s", text.Printable(f.Offline))
	}
	if line := usedFiles(f.Files); line != "" {
		words("%s", text.Printable(line))
	}
	for _, loss := range f.Losses {
		words("%s", text.Printable(loss))
	}
	var rows [][]string
	for _, s := range f.Steps {
		why := s.why()
		for _, d := range s.Changes[min(1, len(s.Changes)):] {
			why += "\n" + text.Printable(d.String())
		}
		rows = append(rows, []string{s.Step, s.verb(), s.expected(), why})
	}
	fmt.Fprintln(w)
	text.Table(w, width, []string{"STEP", "WOULD", "EXPECTED", "WHY"}, rows...)
	f.compared.print(words)
	f.printConsequences(w, words)
	f.printTime(w, words)
	f.printBill(w, width, words)
	_, err := io.WriteString(out, w.String())
	return err
}

// verb is the word of the table.
func (s forecastStep) verb() string {
	switch s.Would {
	case flow.ActionReuse:
		return "be reused"
	case flow.ActionMayRun:
		return "may run"
	case flow.ActionSkip:
		return "be passed over"
	case flow.ActionRefuse, flow.ActionUnknown:
		return "FAIL"
	case flow.ActionNotReached:
		return "not be reached"
	default:
		return string(s.Would)
	}
}

// expected is marked where it is no record, and where it is on the critical path.
func (s forecastStep) expected() string {
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
func (s forecastStep) why() string {
	if len(s.Changes) == 0 {
		return text.Printable(s.Why)
	}
	changed := "changed: " + text.Printable(s.Changes[0].String())
	if strings.HasPrefix(s.Why, "changed: ") {
		return changed
	}
	return text.Printable(s.Why) + "; " + changed
}

func (f forecast) printTime(w io.Writer, words func(string, ...any)) {
	fmt.Fprintln(w)
	if len(f.runs()) == 0 {
		words("nothing is to be done")
		return
	}
	words("expected: %s along %s (*)", text.Elapsed(f.Expected), strings.Join(f.CriticalPath, ", "))
	if rollout := f.rollout(); rollout > 0 && !slices.ContainsFunc(f.runs(), func(s string) bool { return slices.Contains(steps.WaitForServers(), s) }) {
		words("the run does not wait for the servers, which takes about %s more: wait-nodes does", config.Duration(rollout))
	}
	if f.BuiltIn {
		words("~: a built-in figure, there is no record of an earlier run of the step in this state folder")
	}
}

func (f forecast) printBill(w io.Writer, width int, words func(string, ...any)) {
	fmt.Fprintln(w)
	if f.Bill == nil {
		words("what will be made and what it costs is not known: %s", text.Printable(f.Unpriced))
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
		rows = append(rows, []string{counted(o.Count, string(o.Kind)), text.Dash(o.Type), text.Dash(o.Location), text.Printable(o.Name), price})
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

// counted is "3 servers".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// agree shows a person at a terminal what a real run would do, and asks once,
// where it would change something. Nobody is asked in a pipe, with --yes, or in
// the lab, where nothing costs anything.
func agree(ctx context.Context, r *running) error {
	f := forecast{Cluster: r.cfg.ClusterName, World: r.world(), State: string(r.state)}
	return agreeTo(ctx, r, &f, func() error { return f.foresee(ctx, r.cfg, r.tools, r.state, r.asked) })
}

// agreeTo makes a forecast and asks, where there is somebody to ask.
func agreeTo(ctx context.Context, r *running, f *forecast, foresee func() error) error {
	if r.options.Lab || r.options.Yes || r.options.Output != "text" || r.width() == 0 || !answerable(r.console) {
		return nil
	}
	if err := r.hub.Task("plan", "what is to be done", func(flow.Say) error { return foresee() }); err != nil {
		return err
	}
	if !f.changes() {
		return nil
	}
	var text strings.Builder
	if err := f.print(&text, r.width()); err != nil {
		return err
	}
	fmt.Fprintf(r.stdout, "%s\n", r.hide.Text(text.String()))
	if err := confirm(ctx, r.console, "Go ahead? [yes/no] ", "yes"); err != nil {
		return err
	}
	r.tools.Agreed = f.agreed()
	return nil
}

// changes tells whether the run would do more than look.
func (f forecast) changes() bool {
	return slices.ContainsFunc(f.runs(), func(step string) bool { return !slices.Contains(steps.Looking(), step) })
}

func newPlanCommand(in *invocation) *cobra.Command {
	cmd := in.command("plan [TARGET…]", groupLook,
		"what a run would do with each step and why, what it makes and costs, and how long it takes", runPlan)
	cmd.ValidArgsFunction = completeTargets
	return cmd
}
