package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/diagram"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/state/statedir"
	"github.com/slipway-k8s/slipway/steps"
)

// graphDocument is what graph prints as JSON.
type graphDocument struct {
	Graph string         `json:"graph"` // its name
	Steps []diagram.Step `json:"steps"`
}

// runGraph prints the steps and what each depends on. It reads the journal, for the colours, and opens no connection.
func runGraph(ctx context.Context, c *call) error {
	plan, state, err := onPaper(ctx, c)
	if err != nil {
		return err
	}
	recorded, err := plan.Graph.Recorded(ctx, state.Journal())
	if err != nil {
		return err
	}
	drawn := diagram.Drawing(plan.Graph, recorded)
	switch c.Output {
	case "json":
		return ui.PrintJSON(c.stdout, graphDocument{plan.Graph.Name(), diagram.WithStates(plan.Graph, drawn)})
	case "dot":
		_, err = io.WriteString(c.stdout, drawn.DOT())
	case "svg":
		_, err = io.WriteString(c.stdout, drawn.SVG())
	default:
		_, err = io.WriteString(c.stdout, drawn.Mermaid())
	}
	return err
}

// onPaper plans what the arguments say with nothing behind it but the state folder: for what the plan is, not for what
// exists.
func onPaper(ctx context.Context, c *call) (*steps.Plan, statedir.Dir, error) {
	k, err := c.load()
	if err != nil {
		return nil, "", err
	}
	state, err := k.State(ctx)
	if err != nil {
		return nil, "", err
	}
	tools, err := k.LocalTools(state)
	if err != nil {
		return nil, "", err
	}
	plan, err := steps.New(k.Cfg.Config, tools)
	if err != nil {
		return nil, "", &usage.Error{Err: err}
	}
	return plan, state, nil
}

func newGraphCommand(c *call) *cobra.Command {
	cmd := c.command("graph", groupLook,
		"draw the steps and what each depends on, with the states of the journal", runGraph)
	cmd.Annotations = map[string]string{moreOutputs: "mermaid dot svg"}
	return cmd
}
