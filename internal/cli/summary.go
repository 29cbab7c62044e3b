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
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/session"
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
	Hetzner     ratelimit.Counts  `json:"hetzner"`   // requests of the command
	Elapsed     time.Duration     `json:"elapsedNs"` // of the whole command, with what comes before the graph
}

// outputs are the steps of a plan whose outputs a summary shows; nil where the plan has no such step.
type outputs struct {
	management  *flow.Step[steps.Management] // not shown once clean is done
	clean       *flow.Step[steps.Clean]
	cluster     *flow.Step[steps.Cluster]
	kubeconfig  *flow.Step[steps.Kubeconfig]
	talosconfig *flow.Step[steps.Talosconfig]
	nodes       *flow.Step[steps.Nodes]
	workers     *flow.Step[steps.Nodes]
	access      *flow.Step[steps.Access] // replaces the five above it once it is done
}

// output reads what a step made out of the journal, if it is done and no error came before.
func output[T any](ctx context.Context, j flow.Journal, step *flow.Step[T], err *error) (made T, ok bool) {
	if step != nil && *err == nil {
		made, ok, *err = flow.Restore(ctx, j, step)
	}
	return made, ok
}

// summarise reads what the steps made out of the journal. The outputs of steps that are not done stay empty.
func summarise(ctx context.Context, c *call, r *session.Session, result session.Result, of outputs) (s summary, err error) {
	j, report := result.Journal, result.Report
	s = summary{
		Kind: "summary", Time: time.Now(), Run: report.Run, Cluster: r.Cfg.ClusterName, State: string(r.Folder),
		Report: commandLine(c, targetReport), Steps: slices.Concat(r.PriorSteps, report.Steps),
		Hetzner: r.Limit.Counts(), Elapsed: time.Since(r.Began),
	}
	management, managed := output(ctx, j, of.management, &err)
	if _, cleaned := output(ctx, j, of.clean, &err); managed && !cleaned {
		s.Management = r.Folder.Path(management.Kubeconfig)
	}
	if cluster, _ := output(ctx, j, of.cluster, &err); cluster.Endpoint != "" {
		s.Endpoint = "https://" + cluster.Endpoint
	}
	if made, ok := output(ctx, j, of.kubeconfig, &err); ok {
		s.Kubeconfig = r.Folder.Path(made.File)
	}
	if made, ok := output(ctx, j, of.talosconfig, &err); ok {
		s.Talosconfig = r.Folder.Path(made.File)
	}
	if made, ok := output(ctx, j, of.access, &err); ok {
		s.Endpoint, s.Nodes = "https://"+made.Endpoint, made.Nodes
		s.Kubeconfig, s.Talosconfig = r.Folder.Path(made.Kubeconfig), r.Folder.Path(made.Talosconfig.File)
	} else {
		nodes, _ := output(ctx, j, of.nodes, &err)
		workers, _ := output(ctx, j, of.workers, &err)
		s.Nodes = slices.Concat(nodes.Nodes, workers.Nodes)
	}
	return s, err
}

// conclude prints the summary of a run whose steps are done.
func conclude(ctx context.Context, c *call, r *session.Session, result session.Result, of outputs) error {
	r.Hub.Close()
	s, err := summarise(ctx, c, r, result, of)
	if err != nil {
		return fmt.Errorf("everything is done, but the summary cannot be printed: %w", err)
	}
	err = c.printLine(s, s.print)
	if errors.Is(err, syscall.EPIPE) { // the reader has closed the pipe; what the summary says is done all the same
		return nil
	}
	return err
}

// print writes the summary. width is the terminal's, on which the steps have been
// shown already; 0: it is none.
func (s summary) print(out io.Writer, width int) error {
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
