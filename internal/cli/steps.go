package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
)

// newBootstrapCommand makes the target that is meant where none is named.
func newBootstrapCommand(in *invocation, plan *steps.Plan) *cobra.Command {
	cmd := in.stepsCommand(targetBootstrap, groupCluster, "the whole cluster, to Ready nodes")
	if plan != nil {
		cmd.Long = isSteps(plan.Bootstrap)
	}
	return cmd
}

// newAllCommand makes the target of the whole first day.
func newAllCommand(in *invocation, plan *steps.Plan) *cobra.Command {
	cmd := in.stepsCommand(targetAll, groupCluster,
		"the whole first day: bootstrap, pivot, firewall, firewall-apply, clean")
	if plan != nil {
		cmd.Long = isSteps(plan.All)
	}
	return cmd
}

func isSteps(names []string) string {
	return "is: " + strings.Join(names, ", ") + ", with all that they depend on"
}

// newStepCommand makes the target that is one step.
func newStepCommand(in *invocation, s flow.Info, plan *steps.Plan) *cobra.Command {
	cmd := in.stepsCommand(s.Name, groupSteps, s.Doc)
	cmd.Long = aboutStep(plan, s)
	o := &in.arguments.Options
	switch s.Name {
	case targetImage:
		addImageFlags(cmd, o)
	case targetPivot:
		cmd.Flags().BoolVar(&o.Abort, "abort", false, "put a pivot back that has not deleted anything yet")
	}
	return cmd
}

// stepsCommand creates the command of a step: further steps may follow it as arguments.
func (in *invocation) stepsCommand(name, group, doc string) *cobra.Command {
	cmd := in.command(name+" [TARGET…]", group, doc, runOrPlan)
	cmd.Args, cmd.ValidArgsFunction = cobra.ArbitraryArgs, completeTargets
	cmd.Annotations = map[string]string{ofSteps: ""}
	addRunFlags(cmd, &in.arguments.Options)
	return cmd
}

// runOrPlan runs steps, or only says what a run would do.
func runOrPlan(ctx context.Context, c *console, a arguments) error {
	switch {
	case a.Options.DryRun:
		return runPlan(ctx, c, a)
	case a.Options.Packer:
		return runPacker(c, a)
	}
	return runTargets(ctx, c, a)
}
