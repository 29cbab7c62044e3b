package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

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
	d, err := operations.Diagnose(ctx, c.cluster(a, cfg), source, file)
	if err != nil {
		return err
	}
	if a.Options.Output == "json" {
		return ui.PrintJSON(c.stdout, d)
	}
	return printDiagnosis(c.stdout, d)
}

// printDiagnosis writes it for a person.
func printDiagnosis(out io.Writer, d operations.Diagnosis) error {
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
