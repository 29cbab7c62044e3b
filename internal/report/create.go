package report

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/redact"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// File is, in the folder of a run, the page that tells its story.
const File = "report.html"

// Source is what reports of the runs of a state folder are made from.
type Source struct {
	State statedir.Dir
	Hide  *redact.Redactor // the secrets that are known now
	// NoSteps reports whether targets are of a command that runs no steps.
	NoSteps func(targets []string) bool
}

// Made is a report that was written.
type Made struct {
	Kind      string   `json:"kind"` // "report"
	File      string   `json:"file"`
	Run       string   `json:"run"`                 // the last run in the report
	Runs      int      `json:"runs"`                // how many runs it has
	Idle      bool     `json:"idle"`                // the last changed nothing
	IdleAfter []string `json:"idleAfter,omitempty"` // runs after it, which changed nothing
}

// Create writes the page of a run and those that it resumed: of the last that changed something, where wanted is empty;
// into the folder of the run, where out is empty.
func (s Source) Create(ctx context.Context, plan *steps.Plan, wanted, out string) (m Made, err error) {
	past, err := runs.Story(s.State, wanted, s.NoSteps)
	if err != nil {
		return m, err
	}
	for i := range past {
		past[i] = hidden(s.Hide, past[i])
	}
	last := past[len(past)-1]
	page := New(past, plan.Graph.Steps()).Page()
	if err := addOutcome(ctx, &page, plan, s.State.Journal()); err != nil {
		page.Made = append(page.Made, Fact{Name: "the journal",
			Value: text.Printable(s.Hide.Text("cannot be read: " + err.Error()))})
	}
	page.Foot = fmt.Sprintf("Made by Slipway %s on %s from the events of %s.",
		session.Version(), time.Now().UTC().Format(time.RFC1123), text.Plural(len(past), "run", "runs"))
	var idle []string
	if wanted == "" {
		if idle, err = runs.IdleAfter(s.State, last.ID); err != nil {
			return m, err
		}
	}
	var b bytes.Buffer
	if err := Write(&b, page); err != nil {
		return m, fmt.Errorf("write the report: %w", err)
	}
	path := cmp.Or(out, s.State.Path(filepath.Join(statedir.RunsFolder, last.ID, File)))
	if err := replaceFile(path, b.Bytes()); err != nil {
		return m, fmt.Errorf("write the report: %w", err)
	}
	return Made{"report", path, last.ID, len(past), last.Idle(), idle}, nil
}

// LastChange is the last run that changed something; empty: there is none.
func (s Source) LastChange() string {
	all, err := runs.Story(s.State, "", s.NoSteps)
	if err != nil || all[len(all)-1].Idle() {
		return ""
	}
	return all[len(all)-1].ID
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

// hidden hides, in what a run has left, the secrets that are known now, and makes plain lines of all texts. Those that
// the run knew are hidden in it already.
func hidden(hide *redact.Redactor, r runs.Run) runs.Run {
	plain := func(texts ...*string) {
		for _, t := range texts {
			*t = text.Printable(hide.Text(*t))
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
func addOutcome(ctx context.Context, page *Page, plan *steps.Plan, j flow.Journal) error {
	fact := func(name, value string) {
		if value = text.Printable(value); value != "" {
			page.Made = append(page.Made, Fact{Name: name, Value: value})
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
		page.Nodes = append(page.Nodes, Node{
			Name: text.Printable(n.Name), Version: text.Printable(n.Version), Private: text.Printable(n.InternalIP),
			Public: text.Printable(n.ExternalIP), ID: text.Printable(n.ProviderID),
		})
	}
	return nil
}
