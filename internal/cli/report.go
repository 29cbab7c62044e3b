package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// reportFile is, in the folder of a run, the page that tells its story.
const reportFile = "report.html"

// reportMade is what report prints as JSON.
type reportMade struct {
	Kind      string   `json:"kind"` // "report"
	File      string   `json:"file"`
	Run       string   `json:"run"`                 // the last run in the report
	Runs      int      `json:"runs"`                // how many runs it has
	Idle      bool     `json:"idle"`                // the last changed nothing
	IdleAfter []string `json:"idleAfter,omitempty"` // runs after it, which changed nothing
}

// runReport writes the page of a run and those that it resumed.
func runReport(ctx context.Context, c *console, a arguments, o reportOptions) error {
	plan, state, err := onPaper(ctx, c, a)
	if err != nil {
		return err
	}
	wanted := ""
	if words := a.Targets[1:]; len(words) > 0 {
		wanted = words[0]
	}
	if o.List {
		if wanted != "" || o.Out != "" {
			return usage.Errorf("report --list lists all runs, and takes neither a run nor --out")
		}
		return listRuns(c, state, a.Options.Output)
	}
	past, err := runs.Story(state, wanted, runsNoSteps)
	if err != nil {
		return err
	}
	for i := range past {
		past[i] = hideIn(c, past[i])
	}
	last := past[len(past)-1]
	page := report.New(past, plan.Graph.Steps()).Page()
	if err := addOutcome(ctx, &page, plan, state.Journal()); err != nil {
		page.Made = append(page.Made, report.Fact{Name: "the journal",
			Value: text.Printable(c.hide.Text("cannot be read: " + err.Error()))})
	}
	page.Foot = fmt.Sprintf("Made by Slipway %s on %s from the events of %s.",
		session.Version(), time.Now().UTC().Format(time.RFC1123), text.Plural(len(past), "run", "runs"))
	var idle []string
	if wanted == "" {
		if idle, err = runs.IdleAfter(state, last.ID); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := report.Write(&b, page); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	path := state.Path(filepath.Join(statedir.RunsFolder, last.ID, reportFile))
	if o.Out != "" {
		if path = o.Out; !filepath.IsAbs(path) {
			path = filepath.Join(c.workDir, path)
		}
	}
	if err := replaceFile(path, b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, reportMade{"report", path, last.ID, len(past), last.Idle(), idle})
	}
	_, err = fmt.Fprintf(c.stdout, "%s reports %s, %s; open it in a browser\n%s",
		path, text.Plural(len(past), "run", "runs"), last.ID, aboutIdleRuns(c, state, last, idle))
	return err
}

// aboutIdleRuns says which runs the report leaves out because they changed nothing, or that the one it tells is such a
// run.
func aboutIdleRuns(c *console, state statedir.Dir, last runs.Run, after []string) string {
	var words string
	if last.Idle() {
		words = fmt.Sprintf("run %s changed nothing: every step was done already\n", last.ID)
		if others, err := runs.Story(state, "", runsNoSteps); err == nil && !others[len(others)-1].Idle() {
			words += fmt.Sprintf("the last run that did something: %s\n", commandLine(c, targetReport, others[len(others)-1].ID))
		}
		return words
	}
	if n := len(after); n > 0 {
		newest := after[n-1]
		words = fmt.Sprintf("%s after it changed nothing; to read of the last of them: %s\n", text.Plural(n, "run", "runs"),
			commandLine(c, targetReport, newest))
	}
	return words
}

// replaceFile writes a file that only its owner may read, in one piece.
func replaceFile(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // gone where it was renamed
	if _, err := temporary.Write(data); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// hideIn hides, in what a run has left, the secrets that are known now, and makes plain lines of all texts. Those that
// the run knew are hidden in it already.
func hideIn(c *console, r runs.Run) runs.Run {
	plain := func(texts ...*string) {
		for _, t := range texts {
			*t = text.Printable(c.hide.Text(*t))
		}
	}
	for i := range r.Events {
		e := &r.Events[i]
		plain(&e.Message, &e.Err, &e.Step)
	}
	for i := range r.Effects {
		l := &r.Effects[i]
		plain(&l.Object, &l.Verb, &l.Error, &l.Step)
	}
	for i := range r.Setup.Settings {
		s := &r.Setup.Settings[i]
		plain(&s.Value, &s.Source, &s.Default, &s.Variable)
	}
	for i := range r.Setup.Targets {
		plain(&r.Setup.Targets[i])
	}
	plain(&r.Setup.Cluster, &r.Setup.Version, &r.Setup.Go, &r.Setup.System, &r.Setup.Environment)
	return r
}

// addOutcome adds what the journal knows of what was made.
func addOutcome(ctx context.Context, page *report.Page, plan *steps.Plan, j flow.Journal) error {
	fact := func(name, value string) {
		if value = text.Printable(value); value != "" {
			page.Made = append(page.Made, report.Fact{Name: name, Value: value})
		}
	}
	cluster, _, err := flow.Restore(ctx, j, plan.Cluster)
	if err != nil {
		return err
	}
	fact("endpoint", cluster.Endpoint)
	fact("load balancer", cluster.LoadBalancerIP)
	providers, _, err := flow.Restore(ctx, j, plan.Providers)
	if err != nil {
		return err
	}
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(providers.Versions)) {
		versions = append(versions, name+" "+providers.Versions[name])
	}
	fact("Cluster API providers", strings.Join(versions, ", "))
	for _, step := range []*flow.Step[steps.Release]{plan.Cilium, plan.TalosCCM} {
		release, _, err := flow.Restore(ctx, j, step)
		if err != nil {
			return err
		}
		fact(release.Name, release.Version)
	}
	addons, _, err := flow.Restore(ctx, j, plan.Addons)
	if err != nil {
		return err
	}
	for _, r := range addons.Releases {
		fact(r.Name, r.Version)
	}
	nodes, _, err := flow.Restore(ctx, j, plan.Nodes)
	if err != nil {
		return err
	}
	workers, _, err := flow.Restore(ctx, j, plan.WaitWorkers)
	if err != nil {
		return err
	}
	for _, n := range slices.Concat(nodes.Nodes, workers.Nodes) {
		page.Nodes = append(page.Nodes, report.Node{
			Name: text.Printable(n.Name), Version: text.Printable(n.Version), Private: text.Printable(n.InternalIP),
			Public: text.Printable(n.ExternalIP), ID: text.Printable(n.ProviderID),
		})
	}
	return nil
}

// reportOptions are the flags of report.
type reportOptions struct {
	List bool   // list the runs
	Out  string // where; empty: into the folder of the run
}

func newReportCommand(in *invocation) *cobra.Command {
	var own reportOptions
	cmd := in.command("report [RUN]", groupLook,
		"report a run, and those that it resumed, as one HTML page; default: the last run that changed something",
		func(ctx context.Context, c *console, a arguments) error {
			return runReport(ctx, c, a, own)
		})
	cmd.Flags().StringVar(&own.Out, "out", "", "write it to `FILE`, not into the folder of the run")
	cmd.Flags().BoolVar(&own.List, "list", false,
		"list the runs: when, how long, targets, outcome, how much they changed")
	return cmd
}
