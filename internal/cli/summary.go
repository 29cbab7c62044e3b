package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// conclude prints the summary of a run whose steps are done.
func conclude(ctx context.Context, c *call, r *session.Session, result session.Result, of operations.Outputs) error {
	r.Hub.Close()
	s, err := operations.Summarise(ctx, r, result, of)
	if err != nil {
		return fmt.Errorf("everything is done, but the summary cannot be printed: %w", err)
	}
	err = c.printLine(s, func(out io.Writer, width int) error { return printSummary(out, width, s) })
	if errors.Is(err, syscall.EPIPE) { // the reader has closed the pipe; what the summary says is done all the same
		return nil
	}
	return err
}

// printSummary writes the summary. width is the terminal's, on which the steps have been shown already; 0: it is none.
func printSummary(out io.Writer, width int, s operations.Summary) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if width == 0 {
		fmt.Fprintln(w, "\nSTEP\tOUTCOME\tTIME")
		for _, step := range s.Steps {
			fmt.Fprintf(w, "%s\t%s\t%s\n", step.Name, step.Outcome, text.Elapsed(step.Elapsed))
		}
		fmt.Fprintf(w, "\t\t%s\n", text.Elapsed(s.Elapsed))
	}
	if len(s.Nodes) > 0 {
		row := func(cells ...string) {
			if 0 < width && width < text.Wide {
				cells = cells[:len(cells)-1]
			}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		row("\nNODE", "KUBERNETES", "PRIVATE", "PUBLIC", "PROVIDER ID")
		for _, n := range s.Nodes {
			row(n.Name, n.Version, n.InternalIP, n.ExternalIP, n.ProviderID)
		}
	}
	fmt.Fprintln(w)
	took := "" // the list of steps ends with it
	if width > 0 {
		took = text.Elapsed(s.Elapsed)
	}
	for _, line := range []struct{ name, value string }{
		{"cluster", s.Cluster}, {"endpoint", s.Endpoint}, {"kubeconfig", s.Kubeconfig}, {"talosconfig", s.Talosconfig},
		{"management", s.Management}, {"Hetzner", s.Hetzner.String()}, {"state", s.State}, {"report", s.Report}, {"took",
			took},
	} {
		if line.value != "" {
			fmt.Fprintf(w, "%s\t%s\n", line.name, line.value)
		}
	}
	return w.Flush()
}
