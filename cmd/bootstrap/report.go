package main

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

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/report"
	"github.com/slipway-k8s/slipway/steps"
)

// reportFile is, in the folder of a run, the page that tells its story.
const reportFile = "report.html"

// runReport writes the story of a run, with those that it went on from, as a page.
func runReport(ctx context.Context, c *console, a arguments) error {
	plan, state, err := onPaper(ctx, c, a)
	if err != nil {
		return err
	}
	wanted := ""
	if words := a.Targets[1:]; len(words) > 0 {
		wanted = words[0]
	}
	if a.Options.List {
		if wanted != "" || a.Options.Out != "" {
			return usagef("report --list lists all runs, and takes neither a run nor --out")
		}
		return listRuns(c, state, a.Options.Output)
	}
	runs, err := runStory(state, wanted, standsAlone)
	if err != nil {
		return err
	}
	for i := range runs {
		runs[i] = hideIn(c, runs[i])
	}
	last := runs[len(runs)-1]
	page := newStory(runs, plan.Graph.Steps()).page()
	if err := addOutcome(ctx, &page, plan, state.journal()); err != nil {
		page.Made = append(page.Made, report.Fact{Name: "the journal", Value: printable(c.hide.text("cannot be read: " + err.Error()))})
	}
	page.Foot = fmt.Sprintf("Made by Slipway %s on %s from the events of %s.", version(), time.Now().UTC().Format(time.RFC1123), plural(len(runs), "run", "runs"))
	var idle []string
	if wanted == "" {
		if idle, err = idleAfter(state, last.id); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if err := report.Write(&b, page); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	path := state.path(filepath.Join(runsFolder, last.id, reportFile))
	if a.Options.Out != "" {
		if path = a.Options.Out; !filepath.IsAbs(path) {
			path = filepath.Join(c.workDir, path)
		}
	}
	if err := replaceFile(path, b.Bytes()); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if a.Options.Output == "json" {
		told := map[string]any{"kind": "report", "file": path, "run": last.id, "runs": len(runs), "idle": last.idle()}
		if len(idle) > 0 {
			told["idleAfter"] = idle
		}
		return printJSON(c.stdout, told)
	}
	_, err = fmt.Fprintf(c.stdout, "%s tells %s, %s; open it in a browser\n%s", path, plural(len(runs), "run", "runs"), last.id, aboutIdleRuns(c, state, last, idle))
	return err
}

// aboutIdleRuns says which runs the report leaves out because they changed nothing, or that the one it tells is such a run.
func aboutIdleRuns(c *console, state stateFolder, last pastRun, after []string) string {
	var text string
	if last.idle() {
		text = fmt.Sprintf("run %s changed nothing: every step was found done\n", last.id)
		if others, err := runStory(state, "", standsAlone); err == nil && !others[len(others)-1].idle() {
			text += fmt.Sprintf("the last run that did something: %s\n", commandLine(c, targetReport, others[len(others)-1].id))
		}
		return text
	}
	if n := len(after); n > 0 {
		newest := after[n-1]
		text = fmt.Sprintf("%s after it changed nothing; to read of the last of them: %s\n", plural(n, "run", "runs"), commandLine(c, targetReport, newest))
	}
	return text
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
func hideIn(c *console, r pastRun) pastRun {
	plain := func(texts ...*string) {
		for _, t := range texts {
			*t = printable(c.hide.text(*t))
		}
	}
	for i := range r.events {
		e := &r.events[i]
		plain(&e.Message, &e.Err, &e.Step)
	}
	for i := range r.effects {
		l := &r.effects[i]
		plain(&l.Object, &l.Verb, &l.Error, &l.Step)
	}
	for i := range r.setup.Settings {
		s := &r.setup.Settings[i]
		plain(&s.Value, &s.Source, &s.Default, &s.Variable)
	}
	for i := range r.setup.Targets {
		plain(&r.setup.Targets[i])
	}
	plain(&r.setup.Cluster, &r.setup.Version, &r.setup.Go, &r.setup.System, &r.setup.World)
	return r
}

// addOutcome adds what the journal knows of what was made.
func addOutcome(ctx context.Context, page *report.Page, plan *steps.Plan, j flow.Journal) error {
	fact := func(name, value string) {
		if value = printable(value); value != "" {
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
	nodes, _, err := flow.Restore(ctx, j, plan.Nodes)
	if err != nil {
		return err
	}
	for _, n := range nodes.Nodes {
		page.Nodes = append(page.Nodes, report.Node{
			Name: printable(n.Name), Version: printable(n.Version), Private: printable(n.InternalIP), Public: printable(n.ExternalIP), ID: printable(n.ProviderID),
		})
	}
	return nil
}
