package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/render"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/planning"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// unwellError says how many of the doctor's checks failed.
type unwellError struct{ failed int }

func (e *unwellError) Error() string {
	if e.failed == 1 {
		return "1 check of the doctor failed"
	}
	return fmt.Sprintf("%d checks of the doctor failed", e.failed)
}

// examination is what doctor prints as JSON.
type examination struct {
	Kind   string              `json:"kind"` // "doctor"
	Checks []doctor.Finding    `json:"checks"`
	Failed int                 `json:"failed"` // how many checks
	Files  []render.SourceFile `json:"files"`  // that the cluster is made from
}

// runDoctor examines what a run would meet. It changes nothing.
func runDoctor(ctx context.Context, c *console, a arguments) error {
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	tellLiterals(c, cfg)
	if err := refuseMissingRepository(cfg, a.Options.Lab); err != nil {
		return err
	}
	if err := checkEnvironment(ctx, c, a, cfg); err != nil {
		return err
	}
	platform.RedirectLibraryLogs(io.Discard)
	state, err := stateOf(ctx, c, a, cfg)
	if err != nil {
		return err
	}
	cfg, tools, offline, err := predictionTools(ctx, c, a.Options, cfg, state)
	if err != nil {
		return err
	}
	if a.Options.Lab && offline != "" {
		return usage.Errorf("%s: start it first", offline)
	}
	b, err := planning.New(cfg.Config, tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	examiner, err := doctorOf(ctx, b, state)
	if err != nil {
		return err
	}
	files, err := render.SourceFiles(cfg.Overrides)
	if err != nil {
		return &usage.Error{Err: err}
	}
	found := hidden(c, examiner.Examine(ctx))
	unwell := count(found, doctor.Failed)
	if a.Options.Output == "json" {
		err = ui.PrintJSON(c.stdout, examination{"doctor", found, unwell, files})
	} else {
		if line := forecast.UsedFiles(files); line != "" {
			fmt.Fprintln(c.stdout, strings.Join(text.Within(text.Printable(line), c.width()-1), "\n"))
		}
		err = printFindings(c.stdout, found, c.width())
	}
	return cmp.Or(err, unwellOf(found))
}

// doctorOf is the plan's doctor, who knows what the state folder's journal does.
func doctorOf(ctx context.Context, b planning.Bootstrap, state statedir.Dir) (*doctor.Doctor, error) {
	reservation, _, err := flow.Restore(ctx, state.Journal(), b.Plan.Reservation)
	if err != nil {
		return nil, err
	}
	passed, err := b.Plan.PivotPassed(ctx, state.Journal())
	if err != nil {
		return nil, err
	}
	return newDoctor(b).Recorded(reservation.ID).SelfManaged(passed), nil
}

func newDoctor(b planning.Bootstrap) *doctor.Doctor {
	return doctor.New(b.Cfg, b.Tools, b.Sources)
}

// hidden takes secrets out of what servers said.
func hidden(c *console, found []doctor.Finding) []doctor.Finding {
	for i, f := range found {
		found[i].Reason = text.Printable(c.hide.Text(f.Reason))
	}
	return found
}

func count(found []doctor.Finding, verdict doctor.Verdict) int {
	n := 0
	for _, f := range found {
		if f.Verdict == verdict {
			n++
		}
	}
	return n
}

// unwellOf is the error of findings of which some failed: of usage, where a file of the operator is what failed.
func unwellOf(found []doctor.Finding) error {
	n := count(found, doctor.Failed)
	if n == 0 {
		return nil
	}
	err := error(&unwellError{n})
	if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Verdict == doctor.Failed && f.Input }) {
		err = &usage.Error{Err: err}
	}
	return err
}

// printFindings prints them, in lines of the terminal's width where there is one.
func printFindings(out io.Writer, found []doctor.Finding, width int) error {
	const taken = len("address-ranges") + len("unknown") + 4 // by the columns before the text
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHECK\tVERDICT\tWHY")
	for _, f := range found {
		lines := text.Within(text.Printable(f.Reason), width-1-taken)
		if f.Verdict != doctor.OK && f.WayOut != "" {
			lines = append(lines, text.Within("→ "+f.WayOut, width-1-taken)...)
		}
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(w, "%s\t%s\t%s\n", f.Check, f.Verdict, line)
			} else {
				fmt.Fprintf(w, "\t\t%s\n", line)
			}
		}
	}
	fmt.Fprintf(w, "\n%d checks: %d ok, %d failed, %d unknown\n", len(found), count(found, doctor.OK),
		count(found, doctor.Failed), count(found, doctor.Unknown))
	return w.Flush()
}

// doctorTask is the name of the doctor's look before a run, in its events.
const doctorTask = "doctor"

// spending are the steps that make what costs money.
func spending(plan *steps.Plan) []string {
	return []string{plan.Image.Name(), plan.Cluster.Name(), plan.ControlPlane.Name()}
}

// examine has the doctor look before a real run whose journal says that it makes what costs money. Before any other run
// that may change something it looks at the token alone, which the run may write in the place of another one. A failed
// check ends the run; an unknown one is noted.
func examine(ctx context.Context, r *running, targets []string) error {
	if r.options.Lab || r.options.SkipDoctor {
		return nil
	}
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	foreseen, err := b.Plan.Graph.Predict(ctx, r.journal(), targets, false)
	if err != nil {
		return nil // the run itself says it better
	}
	var would []string
	changes := false
	for _, f := range foreseen {
		if f.Action == flow.ActionRun {
			would = append(would, f.Name)
		}
		changes = changes || f.Action != flow.ActionSkip && !slices.Contains(steps.ReadOnlySteps(), f.Name)
	}
	examiner, err := doctorOf(ctx, b, r.state)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(would, func(step string) bool { return slices.Contains(spending(b.Plan), step) }):
		return examined(ctx, r, examiner.For(would))
	case changes:
		return examined(ctx, r, examiner.TokenAlone())
	}
	return nil
}

// examineFor has the doctor look before an operation that makes servers outside
// of the graph: steps.ForServer, steps.ForRestore.
func examineFor(ctx context.Context, r *running, what string) error {
	if r.options.Lab || r.options.SkipDoctor {
		return nil
	}
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return examined(ctx, r, newDoctor(b).For([]string{what}))
}

// examineToken has the doctor look at the token alone before an operation that writes it in the place of another one.
func examineToken(ctx context.Context, r *running) error {
	if r.options.Lab || r.options.SkipDoctor {
		return nil
	}
	b, err := planning.New(r.cfg.Config, r.tools)
	if err != nil {
		return &usage.Error{Err: err}
	}
	return examined(ctx, r, newDoctor(b).TokenAlone())
}

// examined has a doctor look, notes what is not known, and fails with what is
// not well.
func examined(ctx context.Context, r *running, examiner *doctor.Doctor) error {
	err := r.hub.Task(doctorTask, "before anything is created", func(flow.Say) error {
		found := hidden(r.console, examiner.Examine(ctx))
		for _, f := range found {
			switch f.Verdict {
			case doctor.Failed:
				r.hub.Note("doctor: %s failed: %s; %s", f.Check, f.Reason, f.WayOut)
			case doctor.Unknown:
				r.hub.Note("doctor: %s is not known: %s", f.Check, f.Reason)
			}
		}
		return unwellOf(found)
	})
	if err != nil {
		return fmt.Errorf("%w: nothing was created; --skip-doctor runs without these checks", err)
	}
	return nil
}

func newDoctorCommand(in *invocation) *cobra.Command {
	return in.command("doctor", groupLook,
		"check whether a bootstrap would succeed: token, project, names, ranges, versions, files, sources", runDoctor)
}
