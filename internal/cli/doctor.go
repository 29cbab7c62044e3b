package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runDoctor examines what a run would meet. It changes nothing.
func runDoctor(ctx context.Context, c *call, k session.Cluster) error {
	e, err := operations.Examine(ctx, k)
	if err != nil {
		return err
	}
	return cmp.Or(c.print(e, func(out io.Writer, width int) error {
		if line := forecast.UsedFiles(e.Files); line != "" {
			fmt.Fprintln(out, strings.Join(text.Within(text.Printable(line), width-1), "\n"))
		}
		return printFindings(out, e.Checks, width)
	}), e.Err())
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
	fmt.Fprintf(w, "\n%d checks: %d ok, %d failed, %d unknown\n", len(found), doctor.Count(found, doctor.OK),
		doctor.Count(found, doctor.Failed), doctor.Count(found, doctor.Unknown))
	return w.Flush()
}

func newDoctorCommand(c *call) *cobra.Command {
	return c.command("doctor", groupLook,
		"check whether a bootstrap would succeed: token, project, names, ranges, versions, files, sources", withCluster(runDoctor))
}
