package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/provider/kind"
	"github.com/slipway-k8s/slipway/internal/provider/lab"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/platform"
	"github.com/slipway-k8s/slipway/steps"
)

// Groups of commands in the help text.
const (
	groupCluster  = "cluster"
	groupLook     = "look"
	groupRecovery = "recovery"
	groupConfig   = "config"
	groupLab      = "lab"
	groupOther    = "other"
	groupSteps    = "steps"
)

// Annotations of commands.
const (
	ofSteps     = "steps"   // the command is a step, and can be combined with others
	moreOutputs = "outputs" // what --output can be besides text and json, with spaces between
)

// action is what a command does.
type action func(context.Context, *call) error

// withCluster is an action on the cluster that is asked for, with the keys of --identity where the command has it.
func withCluster(do func(context.Context, *call, session.Cluster) error) action {
	return func(ctx context.Context, c *call) error {
		k, err := c.load(c.backupValues()...)
		if err != nil {
			return err
		}
		return do(ctx, c, k)
	}
}

// keepCommandOrder has cobra list commands in the order in which they are added: that of a cluster's life.
var keepCommandOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

// newRoot is the tree of commands. Those of the steps are in it where a plan is given.
func newRoot(c *call, plan *steps.Plan) *cobra.Command {
	keepCommandOrder()
	root := &cobra.Command{
		Use:   platform.Program + " [TARGET ...] [KEY=VALUE ...]",
		Short: "Bootstrap a Talos Linux Kubernetes cluster on Hetzner Cloud",
		Args:  cobra.ArbitraryArgs, RunE: c.run(runOrPlan), ValidArgsFunction: completeVariables,
		Annotations: map[string]string{ofSteps: ""}, SilenceErrors: true, SilenceUsage: true, DisableFlagsInUseLine: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd) },
	}
	if c.console != nil {
		root.SetOut(c.stdout)
		root.SetErr(c.stderr)
	}
	root.AddGroup(
		&cobra.Group{ID: groupCluster, Title: "change"},
		&cobra.Group{ID: groupLook, Title: "look"},
		&cobra.Group{ID: groupRecovery, Title: "recover"},
		&cobra.Group{ID: groupConfig, Title: "configure"},
		&cobra.Group{ID: groupLab, Title: "rehearse"},
		&cobra.Group{ID: groupOther, Title: "other"},
		&cobra.Group{ID: groupSteps, Title: "steps"},
	)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(root, cmd, err) })
	root.SetHelpCommand(newHelpCommand(c))
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	addSharedFlags(root, &c.arguments)
	addRunFlags(root, &c.arguments)
	root.AddCommand(
		newBootstrapCommand(c, plan), newAllCommand(c, plan), newAdoptCommand(c), newDestroyCommand(c),
		newLeftoversCommand(c), newFleetCommand(c), newScaleCommand(c), newUpgradeCommand(c),
		newReplaceMachineCommand(c), newRotateCommand(c), newBackupCommand(c), newRestoreCommand(c),
		newReadoptCommand(c), newRecoverQuorumCommand(c), newRecoverReleasesCommand(c), newDrillCommand(c),
		newStatusCommand(c), newEffectsCommand(c), newReportCommand(c), newLogsCommand(c), newDoctorCommand(c),
		newPlanCommand(c), newConfigCommand(c), newStateCommand(c), newDepsCommand(c), newGitopsCommand(c),
		newGraphCommand(c), newLabCommand(c), newServeCommand(c), newVersionCommand(c),
	)
	if plan != nil {
		for _, s := range plan.Graph.Steps() {
			root.AddCommand(newStepCommand(c, s, plan))
		}
	}
	root.InitDefaultHelpCmd()
	addCompletion(root)
	explain(root)
	printHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if c.only || c.console == nil {
			return
		}
		var b strings.Builder
		if cmd == root {
			printOverview(&b, root)
		} else {
			cmd.SetOut(&b)
			printHelp(cmd, args)
		}
		_, _ = io.WriteString(c.stdout, text.Fold(b.String(), c.width()))
	})
	return root
}

// execute does what the arguments say. An error before the command has begun is a usage.Error.
func (c *call) execute(ctx context.Context, args []string) error {
	plan, err := planForNames()
	if err != nil {
		return err
	}
	root := newRoot(c, plan)
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		root.SetArgs(forCompletion(root, args))
		return root.ExecuteContext(ctx)
	}
	t, err := splitArgs(root, args)
	if err != nil {
		return err
	}
	c.Targets, c.Values = t.words, t.values
	root.SetArgs(slices.Concat([]string{}, t.words, t.flags))
	err = root.ExecuteContext(ctx)
	if _, is := errors.AsType[*usage.Error](err); err != nil && !c.begun && !is {
		err = &usage.Error{Err: err}
	}
	return err
}

// command makes a command that does one thing, alone. Its Use line names its arguments: NAME for one that it needs,
// [NAME] for one that may follow, [NAME…] for any number.
func (c *call) command(use, group, doc string, do action) *cobra.Command {
	return &cobra.Command{
		Use: use, GroupID: group, Short: doc, RunE: c.run(do), DisableFlagsInUseLine: true,
		Args:              func(cmd *cobra.Command, words []string) error { return checkWords(cmd, words) },
		ValidArgsFunction: completeVariables,
	}
}

// parent makes a command that only has others below it.
func (c *call) parent(use, group, doc string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, GroupID: group, Short: doc, Args: cobra.ArbitraryArgs, DisableFlagsInUseLine: true,
		RunE:              func(cmd *cobra.Command, words []string) error { return unknownSubcommand(cmd, words) },
		ValidArgsFunction: completeVariables,
	}
	cmd.AddCommand(below...)
	return cmd
}

// run is an action as cobra calls it.
func (c *call) run(do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if c.only {
			return nil
		}
		c.begun = true
		return do(cmd.Context(), c)
	}
}

// check refuses flags that do not go together.
func (c *call) check(cmd *cobra.Command) error {
	o := c.arguments
	switch {
	case !slices.Contains(lab.APIDates(), o.LabAPI):
		return usage.Errorf("--lab-api %q is none of %s", o.LabAPI, strings.Join(lab.APIDates(), ", "))
	case o.LabLatency != "fast" && o.LabLatency != "real":
		return usage.Errorf("--lab-latency %q is neither fast nor real", o.LabLatency)
	case o.DryRun && (o.Prune || o.Abort || o.Packer):
		return usage.Errorf("--dry-run does not go with --prune, --abort and --packer")
	case o.LabUntil < 0:
		return usage.Errorf("--lab-until-gone %d is no process's id", o.LabUntil)
	case o.Parallel < 0:
		return usage.Errorf("--parallel %d is negative: 0 means as many steps at once as can", o.Parallel)
	}
	if err := checkLoneFlags(cmd); err != nil {
		return err
	}
	forms := outputForms(cmd)
	switch {
	case slices.Contains(forms, o.Output):
		return nil
	case len(forms) == 2:
		return usage.Errorf("--output %q is neither text nor json", o.Output)
	default:
		return usage.Errorf("--output %q is none of %s", o.Output, strings.Join(forms, ", "))
	}
}

// checkLoneFlags refuses the flags of one step where other targets are asked for besides.
func checkLoneFlags(cmd *cobra.Command) (err error) {
	if _, is := cmd.Annotations[ofSteps]; !is || len(cmd.Flags().Args()) == 0 {
		return nil
	}
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && cmd.Root().Flags().Lookup(f.Name) == nil && err == nil {
			err = misplacedFlag(cmd.Root(), "--"+f.Name, f.Name)
		}
	})
	return err
}

// outputForms are what --output can be.
func outputForms(cmd *cobra.Command) []string {
	return append([]string{"text", "json"}, strings.Fields(cmd.Annotations[moreOutputs])...)
}

// pathOf is the command as it is typed, without the program's name.
func pathOf(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()))
}

// usageOf is the command as it is typed, with its arguments.
func usageOf(cmd *cobra.Command) string {
	return strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), cmd.Root().Name()))
}

// argumentsOf are the arguments that a command needs, and what may follow them.
func argumentsOf(cmd *cobra.Command) (needed []string, optional string) {
	for _, word := range strings.Fields(cmd.Use)[1:] {
		if rest, is := strings.CutPrefix(word, "["); is {
			optional = strings.TrimSuffix(rest, "]")
		} else {
			needed = append(needed, word)
		}
	}
	return needed, optional
}

// checkWords refuses arguments that do not fit the command.
func checkWords(cmd *cobra.Command, rest []string) error {
	needed, optional := argumentsOf(cmd)
	most := len(needed)
	switch {
	case strings.HasSuffix(optional, "…"):
		most = len(rest)
	case optional != "":
		most++
	}
	switch {
	case len(rest) < len(needed):
		return usage.Errorf("%s needs %s: write %s", pathOf(cmd), needed[len(rest)], usageOf(cmd))
	case len(rest) > most && most == 0:
		return usage.Errorf("%s cannot be combined with %q", pathOf(cmd), rest[0])
	case len(rest) > most:
		return usage.Errorf("%s cannot be combined with %q: write %s", pathOf(cmd), rest[most], usageOf(cmd))
	}
	return nil
}

// unknownSubcommand is about a command that only has others below it.
func unknownSubcommand(cmd *cobra.Command, words []string) error {
	var verbs []string
	for _, below := range cmd.Commands() {
		verbs = append(verbs, below.Name())
	}
	if len(words) == 0 {
		return usage.Errorf("%s takes one of: %s", pathOf(cmd), strings.Join(verbs, ", "))
	}
	return usage.Errorf("%s cannot %q%s; it takes one of: %s",
		pathOf(cmd), words[0], usage.DidYouMean("", words[0], verbs),
		strings.Join(verbs, ", "))
}

// commandOf finds the command, other than a step, that the words name; nil: they name steps.
func commandOf(words []string) *cobra.Command {
	cmd, _, err := newRoot(&call{only: true}, nil).Find(words)
	if _, is := cmd.Annotations[ofSteps]; err != nil || is {
		return nil
	}
	return cmd
}

// runsNoSteps reports whether the words ask for a command that runs no steps.
func runsNoSteps(words []string) bool { return commandOf(words) != nil }

// walk visits a command and all below it.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, below := range cmd.Commands() {
		walk(below, visit)
	}
}

// planForNames is the plan of the default configuration, with nothing behind it, of which only the names of the steps
// and their texts are used.
func planForNames() (*steps.Plan, error) {
	plan, err := steps.New(config.Defaults(), platform.Tools{Management: &kind.Provider{}})
	if err != nil {
		return nil, fmt.Errorf("list the steps: %w", err)
	}
	return plan, nil
}
