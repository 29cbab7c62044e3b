package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/text"
	"github.com/slipway-k8s/slipway/steps"
)

// summary is what a person, or a program, needs after a run.
type summary struct {
	Kind        string            `json:"kind"` // "summary", to tell it from events
	Time        time.Time         `json:"time"`
	Run         string            `json:"run"`
	Cluster     string            `json:"cluster"`
	Endpoint    string            `json:"endpoint,omitempty"` // of the Kubernetes API
	Nodes       []steps.Node      `json:"nodes,omitempty"`
	Kubeconfig  string            `json:"kubeconfig,omitempty"`
	Talosconfig string            `json:"talosconfig,omitempty"`
	Management  string            `json:"managementKubeconfig,omitempty"`
	State       string            `json:"state"`
	Report      string            `json:"report"` // what makes a page of the run
	Steps       []flow.StepReport `json:"steps"`
	Elapsed     time.Duration     `json:"elapsedNs"` // of the whole command, with what comes before the graph
}

// summaryOf is what the summary of every run has.
func (r *running) summaryOf(report *flow.Report) summary {
	return summary{
		Kind: "summary", Time: time.Now(), Run: report.Run, Cluster: r.cfg.ClusterName,
		State: string(r.state), Report: commandLine(r.console, targetReport), Steps: slices.Concat(r.before, report.Steps), Elapsed: time.Since(r.began),
	}
}

// summarise reads what the steps made out of the journal. What is not there yet
// stays empty.
func summarise(ctx context.Context, r *running, plan *steps.Plan, j flow.Journal, report *flow.Report) (summary, error) {
	s := r.summaryOf(report)
	management, ok, err := flow.Restore(ctx, j, plan.Management)
	if err != nil {
		return s, err
	}
	_, cleaned, err := flow.Restore(ctx, j, plan.Clean)
	if err != nil {
		return s, err
	}
	if ok && !cleaned {
		s.Management = r.state.Path(management.Kubeconfig)
	}
	cluster, _, err := flow.Restore(ctx, j, plan.Cluster)
	if err != nil {
		return s, err
	}
	if cluster.Endpoint != "" {
		s.Endpoint = "https://" + cluster.Endpoint
	}
	kubeconfig, ok, err := flow.Restore(ctx, j, plan.Kubeconfig)
	if err != nil {
		return s, err
	}
	if ok {
		s.Kubeconfig = r.state.Path(kubeconfig.File)
	}
	talosconfig, ok, err := flow.Restore(ctx, j, plan.Talosconfig)
	if err != nil {
		return s, err
	}
	if ok {
		s.Talosconfig = r.state.Path(talosconfig.File)
	}
	access, ok, err := flow.Restore(ctx, j, plan.Access)
	if err != nil {
		return s, err
	}
	if ok { // after a pivot it is what is looked at
		s.Endpoint = "https://" + access.Endpoint
		s.Kubeconfig, s.Talosconfig, s.Nodes = r.state.Path(access.Kubeconfig), r.state.Path(access.Talosconfig.File), access.Nodes
		return s, nil
	}
	nodes, _, err := flow.Restore(ctx, j, plan.Nodes)
	s.Nodes = nodes.Nodes
	return s, err
}

// tell prints the summary, or hands it to who watches the run.
func (r *running) tell(s summary) error {
	if r.watch != nil {
		r.watch.summary = s
		return nil
	}
	err := s.print(r.stdout, r.options.Output, r.width())
	if errors.Is(err, syscall.EPIPE) { // nobody reads it any more; what it says is done all the same
		return nil
	}
	return err
}

// print writes the summary. width is the terminal's, on which the steps have been
// shown already; 0: it is none.
func (s summary) print(out io.Writer, format string, width int) error {
	if format == "json" {
		return ui.PrintJSONLine(out, s)
	}
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
		{"management", s.Management}, {"state", s.State}, {"report", s.Report}, {"took", took},
	} {
		if line.value != "" {
			fmt.Fprintf(w, "%s\t%s\n", line.name, line.value)
		}
	}
	return w.Flush()
}
