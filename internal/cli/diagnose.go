package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/operation/recovery"
	"github.com/slipway-k8s/slipway/internal/operation/recovery/restore"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/state/runs"
)

// forecastOfSteps is how long something should take.
type forecastOfSteps struct {
	Seconds float64 `json:"seconds"`
	// Recorded is how many of its steps were seen in earlier runs; the others' figures are built in.
	Recorded int `json:"recordedSteps"`
	Steps    int `json:"steps"`
}

// diagnosis is a recovery.Diagnosis as it is put out.
type diagnosis struct {
	Kind string `json:"kind"`
	recovery.Diagnosis
	Command string           `json:"command,omitempty"` // Target, as it is typed
	Takes   *forecastOfSteps `json:"takes,omitempty"`
}

// runDiagnose finds out which disaster has befallen a cluster, and says what to
// type. It changes nothing.
func runDiagnose(ctx context.Context, c *console, a arguments) error {
	a = withIdentity(a)
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return err
	}
	var source *backup.Cluster
	file := ""
	if len(a.Targets) > 1 {
		file = a.Targets[1]
		b, err := openBackup(ctx, c, a, file, true)
		if err != nil {
			return err
		}
		a, cfg, source = b.arguments, b.cfg, &b.Source
	}
	if source != nil {
		if _, err := restore.New(cfg.Config, session.OfflineTools(cfg), *source); err != nil {
			return &usage.Error{Err: err}
		}
	}
	at, err := c.cluster(a, cfg).InspectForPlan(ctx)
	if err != nil {
		return err
	}
	if at.Offline != "" {
		return errors.New(at.Offline)
	}
	found, err := recovery.Diagnose(ctx, at.Cfg.Config, at.Tools, source, file)
	if err != nil {
		return err
	}
	took := runs.ReadDurations(at.Folder, at.Environment())
	d := diagnosis{Kind: "diagnosis", Diagnosis: found, Takes: forecastDuration(took, found.Steps)}
	if len(found.Target) > 0 {
		d.Command = commandLine(c, found.Target...)
	}
	for i, line := range d.Seen {
		d.Seen[i] = text.Printable(c.hide.Text(line))
	}
	d.Sentence = text.Printable(c.hide.Text(d.Sentence))
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, d)
	}
	return d.print(c.stdout)
}

// forecastDuration adds steps up that come one after the other; nil for none.
func forecastDuration(d runs.Durations, names []string) *forecastOfSteps {
	if len(names) == 0 {
		return nil
	}
	f := &forecastOfSteps{Steps: len(names)}
	for _, name := range names {
		took, recorded := d.Of(name)
		f.Seconds += took.Seconds()
		if recorded {
			f.Recorded++
		}
	}
	return f
}

// String is "about 1m20s (built-in figures: there is no record of it yet)".
func (f forecastOfSteps) String() string {
	from := fmt.Sprintf("%d of its %d steps by the record of earlier runs, the others by built-in figures",
		f.Recorded, f.Steps)
	switch f.Recorded {
	case 0:
		from = "built-in figures: there is no record of it yet"
	case f.Steps:
		from = "by the record of earlier runs"
	}
	return fmt.Sprintf("about %s (%s)", text.Elapsed(time.Duration(f.Seconds*float64(time.Second))), from)
}

// print writes it for a person.
func (d diagnosis) print(out io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "cluster %s: %s (%s)\n", d.Cluster, d.Sentence, d.Disaster)
	list := func(title string, lines []string) {
		if len(lines) > 0 {
			fmt.Fprintf(&text, "\n%s\n", title)
		}
		for _, line := range lines {
			fmt.Fprintf(&text, "  - %s\n", line)
		}
	}
	list("seen:", d.Seen)
	if d.Backup != nil {
		fmt.Fprintf(&text, "\nbackup: %s, taken %s, etcd's revision %d or later\n",
			d.Backup.File, d.Backup.Taken.Format(time.RFC3339), d.Backup.Revision)
	}
	list("first:", d.First)
	if d.Command != "" {
		fmt.Fprintf(&text, "\ntype:\n  %s\n", d.Command)
	}
	list("what that does:", d.Does)
	list("what is lost:", d.Lost)
	if d.Takes != nil {
		fmt.Fprintf(&text, "\nit should take %s\n", d.Takes)
	}
	_, err := io.WriteString(out, text.String())
	return err
}
