package operations

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/client/hetzner/ratelimit"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/steps"
)

// Summary is what a person, or a program, needs after a run.
type Summary struct {
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

// Outputs are the steps of a plan whose outputs a summary shows; nil where the plan has no such step.
type Outputs struct {
	Management  *flow.Step[steps.Management] // not shown once clean is done
	Clean       *flow.Step[steps.Clean]
	Cluster     *flow.Step[steps.Cluster]
	Kubeconfig  *flow.Step[steps.Kubeconfig]
	Talosconfig *flow.Step[steps.Talosconfig]
	Nodes       *flow.Step[steps.Nodes]
	Workers     *flow.Step[steps.Nodes]
	Access      *flow.Step[steps.Access] // replaces the five above it once it is done
}

// output reads what a step made out of the journal, if it is done and no error came before.
func output[T any](ctx context.Context, j flow.Journal, step *flow.Step[T], err *error) (made T, ok bool) {
	if step != nil && *err == nil {
		made, ok, *err = flow.Restore(ctx, j, step)
	}
	return made, ok
}

// Summarise reads what the steps made out of the journal. The outputs of steps that are not done stay empty.
func Summarise(ctx context.Context, r *session.Session, result session.Result, of Outputs) (s Summary, err error) {
	j, report := result.Journal, result.Report
	s = Summary{
		Kind: "summary", Time: time.Now(), Run: report.Run, Cluster: r.Cfg.ClusterName, State: string(r.Folder),
		Report: r.Caller.Command("report"), Steps: slices.Concat(r.PriorSteps, report.Steps),
		Hetzner: r.Limit.Counts(), Elapsed: time.Since(r.Began),
	}
	management, managed := output(ctx, j, of.Management, &err)
	if _, cleaned := output(ctx, j, of.Clean, &err); managed && !cleaned {
		s.Management = r.Folder.Path(management.Kubeconfig)
	}
	if cluster, _ := output(ctx, j, of.Cluster, &err); cluster.Endpoint != "" {
		s.Endpoint = "https://" + cluster.Endpoint
	}
	if made, ok := output(ctx, j, of.Kubeconfig, &err); ok {
		s.Kubeconfig = r.Folder.Path(made.File)
	}
	if made, ok := output(ctx, j, of.Talosconfig, &err); ok {
		s.Talosconfig = r.Folder.Path(made.File)
	}
	if made, ok := output(ctx, j, of.Access, &err); ok {
		s.Endpoint, s.Nodes = "https://"+made.Endpoint, made.Nodes
		s.Kubeconfig, s.Talosconfig = r.Folder.Path(made.Kubeconfig), r.Folder.Path(made.Talosconfig.File)
	} else {
		nodes, _ := output(ctx, j, of.Nodes, &err)
		workers, _ := output(ctx, j, of.Workers, &err)
		s.Nodes = slices.Concat(nodes.Nodes, workers.Nodes)
	}
	return s, err
}
