package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/drill"
	"github.com/slipway-k8s/slipway/internal/operation/upgrade"
)

// upgradeReport is what the rehearsal of an upgrade found out, in `bootstrap upgrade --rehearse FILE --output json`.
type upgradeReport struct {
	Kind        string               `json:"kind"` // "rehearsal", to tell it from events
	Cluster     string               `json:"cluster"`
	Began       time.Time            `json:"began"`
	Passed      bool                 `json:"passed"`
	Parts       []drillPart          `json:"parts"`
	Stages      []drillPart          `json:"stages"` // steps of the upgrade
	API         upgrade.Availability `json:"api"`    // while it was upgraded
	Comparisons []drill.Likeness     `json:"comparisons"`
}

// rehearseUpgrade restores a backup into a lab of its own, upgrades it there, and compares it with the backup. given
// are the arguments as the operator wrote them: the restore takes the versions of the backup.
func rehearseUpgrade(ctx context.Context, c *console, a, given arguments, o upgradeOptions) (err error) {
	d, err := newDrill(c, withoutVersions(given), drillOptions{Backup: o.Rehearse, KeepLab: o.KeepLab})
	if err != nil {
		return err
	}
	d.report.Kind, d.parts = "rehearsal", 3
	defer func() { err = d.end(ctx, err) }()
	r := &upgradeReport{Kind: d.report.Kind, Began: d.report.Began}
	if err := d.rehearse(ctx, r, a, o); err != nil {
		return err
	}
	return r.print(c.stdout, a.Options.Output)
}

func (d *drillRun) rehearse(ctx context.Context, r *upgradeReport, a arguments, o upgradeOptions) error {
	b, err := d.open(ctx, o.Rehearse)
	if err != nil {
		return err
	}
	d.given.base, r.Cluster = b.arguments.base, b.Source.Contents.Header.Cluster
	if err := d.part(ctx, partRestore, "your backup, in an empty lab", func(ctx context.Context) error {
		d.lost = time.Now()
		return d.restore(ctx, o.Rehearse)
	}); err != nil {
		return err
	}
	if err := d.part(ctx, "upgrade", "with every check of a real one", func(ctx context.Context) error {
		return d.upgrade(ctx, r, a, o)
	}); err != nil {
		return err
	}
	return d.part(ctx, "compare", "with what the backup says", func(ctx context.Context) error {
		return d.compareUpgraded(ctx, r, b.Source)
	})
}

// upgrade runs the target in the rehearsal's lab.
func (d *drillRun) upgrade(ctx context.Context, r *upgradeReport, a arguments, o upgradeOptions) error {
	var w watcher
	target := d.arguments("upgrade")
	target.Values = a.Values
	target.base = d.given.base
	if err := runUpgrade(ctx, d.watched(&w), target, upgradeOptions{Via: o.Via, PauseAfter: o.PauseAfter,
		InPlace: o.InPlace}); err != nil {
		return err
	}
	for _, e := range w.events {
		r.Stages = append(r.Stages, drillPart{Name: e.Step, Elapsed: e.Elapsed})
	}
	r.API = w.api
	return nil
}

// compareUpgraded compares the upgraded cluster with the backup.
func (d *drillRun) compareUpgraded(ctx context.Context, r *upgradeReport, source backup.Cluster) error {
	err := d.looking(ctx, "compare", "what is there with the backup", func(o drill.Drill, say flow.Say) (err error) {
		r.Comparisons, err = o.CompareBackup(ctx, say, source)
		return err
	})
	r.Parts = d.report.Parts
	r.Passed = err == nil
	for _, c := range r.Comparisons {
		r.Passed = r.Passed && c.Same
	}
	return err
}

func (r *upgradeReport) print(out io.Writer, format string) error {
	if format == "json" {
		return ui.PrintJSONLine(out, r)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	verdict := "passed"
	if !r.Passed {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\nthe rehearsal of the upgrade of cluster %s has %s\n\nPART\tTIME\n", text.Printable(r.Cluster),
		verdict)
	for _, p := range r.Parts {
		fmt.Fprintf(w, "%s\t%s\n", p.Name, text.Elapsed(p.Elapsed))
	}
	fmt.Fprintln(w, "\nSTEP OF THE UPGRADE\tTIME")
	for _, s := range r.Stages {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, text.Elapsed(s.Elapsed))
	}
	printComparisons(w, r.Comparisons)
	fmt.Fprintf(w, "\n%s\n", r.API)
	return w.Flush()
}
