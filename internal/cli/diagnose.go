package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/backup"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runDiagnose finds out which disaster has befallen a cluster, and says what to
// type. It changes nothing.
func runDiagnose(ctx context.Context, c *call, k session.Cluster) error {
	var source *backup.Cluster
	if file := c.word(1); file != "" {
		b, err := c.openBackup(ctx, k, file, true)
		if err != nil {
			return err
		}
		k, source = b.cluster, &b.Source
	}
	d, err := operations.Diagnose(ctx, k, source, c.word(1))
	if err != nil {
		return err
	}
	return c.print(d, func(out io.Writer, _ int) error { return printDiagnosis(out, d) })
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
