package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/steps"
)

// newBootstrapCommand makes the target that is meant where none is named.
func newBootstrapCommand(c *call, plan *steps.Plan) *cobra.Command {
	cmd := c.stepsCommand(targetBootstrap, groupCluster, "the whole cluster, to Ready nodes")
	if plan != nil {
		cmd.Long = isSteps(plan.Bootstrap)
	}
	return cmd
}

// newAllCommand makes the target of the whole first day.
func newAllCommand(c *call, plan *steps.Plan) *cobra.Command {
	cmd := c.stepsCommand(targetAll, groupCluster,
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
func newStepCommand(c *call, s flow.Info, plan *steps.Plan) *cobra.Command {
	cmd := c.stepsCommand(s.Name, groupSteps, s.Doc)
	cmd.Long = aboutStep(plan, s)
	o := &c.arguments
	switch s.Name {
	case targetImage:
		addImageFlags(cmd, o)
	case targetApply:
		cmd.Long += "\n\nAlone, and in a cluster that manages itself, it brings what was changed in the configuration to the " +
			"cluster: the control plane's servers are replaced one after another. With --dry-run it says what that is."
		addRehearsal(c, cmd)
		addPauseAfterFlag(cmd, &o.Apply.PauseAfter)
		cmd.Flags().BoolVar(&o.Apply.InPlace, "in-place", false, "change the machine configuration of the control "+
			"plane servers that there are, and Talos to a patch release, without replacing them; "+
			"what needs new servers is refused")
	case targetPivot:
		cmd.Flags().BoolVar(&o.Abort, "abort", false, "put a pivot back that has not deleted anything yet")
	}
	return cmd
}

// addRehearsal has apply rehearse its change on a copy of the cluster, where a backup is named.
func addRehearsal(c *call, cmd *cobra.Command) {
	var own rehearsalOptions
	own.addFlags(cmd, "change it as it is configured")
	addAcceptFlags(cmd, &c.arguments)
	cmd.RunE = c.run(func(ctx context.Context, c *call) error {
		if err := own.check(c); err != nil {
			return err
		}
		if own.Rehearse == "" {
			return runOrPlan(ctx, c)
		}
		return rehearseApply(ctx, c, own)
	})
}

// stepsCommand creates the command of a step: further steps may follow it as arguments.
func (c *call) stepsCommand(name, group, doc string) *cobra.Command {
	cmd := c.command(name+" [TARGET…]", group, doc, runOrPlan)
	cmd.Args, cmd.ValidArgsFunction = cobra.ArbitraryArgs, completeTargets
	cmd.Annotations = map[string]string{ofSteps: ""}
	addRunFlags(cmd, &c.arguments)
	return cmd
}

// runOrPlan runs steps, or only says what a run would do.
func runOrPlan(ctx context.Context, c *call) error {
	switch {
	case c.DryRun:
		return runPlan(ctx, c)
	case c.Packer:
		return runPacker(c)
	}
	return runTargets(ctx, c)
}
