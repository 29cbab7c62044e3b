package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/doctor"
	"github.com/slipway-k8s/slipway/internal/scale"
	"github.com/slipway-k8s/slipway/internal/usage"
	"github.com/slipway-k8s/slipway/internal/wait"
	"github.com/slipway-k8s/slipway/platform"
)

// scaleControlPlane is the group of servers that scale changes.
const scaleControlPlane = "control-plane"

func newScaleCommand(in *invocation) *cobra.Command {
	cmd := in.command("scale GROUP COUNT", groupCluster,
		"another number of control plane servers, one after another, while etcd keeps its quorum", runScale)
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say what it would do and what that costs")
	addSkipDoctorFlag(cmd, o)
	return cmd
}

// scaleArguments reads the group and the count, which the configuration has to allow.
func scaleArguments(c *console, a arguments) (count int, err error) {
	group, number := a.Targets[1], a.Targets[2]
	if group != scaleControlPlane {
		return 0, usage.Errorf("scale knows no group of servers %q: write %s", group, scaleControlPlane)
	}
	if count, err = strconv.Atoi(number); err != nil {
		return 0, usage.Errorf("scale %s: %q is no number of servers", group, number)
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return 0, err
	}
	cfg.ControlPlaneReplicas = count
	for _, wrong := range cfg.Validate() {
		return 0, usage.Errorf("scale %s %d: %w", group, count, wrong)
	}
	return count, nil
}

// runScale changes the number of control plane servers.
func runScale(ctx context.Context, c *console, a arguments) error {
	count, err := scaleArguments(c, a)
	if err != nil {
		return err
	}
	if a.Options.DryRun {
		return look(ctx, c, a, func(cfg config.Config, tools platform.Tools) error {
			change, err := wait.Promptly(ctx, func(ctx context.Context) (scale.Change, error) {
				return scale.NewControlPlane(cfg, tools).Examine(ctx, func(string, ...any) {}, count)
			})
			if err != nil {
				return err
			}
			return printChange(c, change, a.Options.Output)
		})
	}
	return operate(ctx, c, a, func(r *running) error {
		if err := errors.Join(refuseDuringRecovery(r.console, r.state), refuseOtherProject(ctx, r)); err != nil {
			return err
		}
		controlPlane := scale.NewControlPlane(r.cfg.Config, r.tools)
		change, err := controlPlane.Examine(ctx, func(string, ...any) {}, count)
		if err != nil {
			return err
		}
		r.hub.Note("%s", change)
		if err := agreeToScale(ctx, c, a, r, change); err != nil {
			return err
		}
		var steps []scale.Step
		err = r.hub.Task("scale", fmt.Sprintf("%d control plane servers", count), func(say flow.Say) (err error) {
			steps, err = controlPlane.Run(ctx, say, count)
			return err
		})
		if err != nil {
			return fmt.Errorf("%w\nlog: %s", err, r.files.Log.Name())
		}
		for _, s := range steps {
			r.hub.Note("%s", s)
		}
		if count != r.cfg.ControlPlaneReplicas {
			r.hub.Note("set controlPlaneReplicas: %d in bootstrap.yaml: the configuration says %d, and later runs name the "+
				"difference", count, r.cfg.ControlPlaneReplicas)
		}
		return nil
	})
}

// agreeToScale has the doctor examine what new servers need, or asks before servers are deleted.
func agreeToScale(ctx context.Context, c *console, a arguments, r *running, change scale.Change) error {
	switch {
	case change.To > change.From:
		return examineFor(ctx, r, doctor.ForServer)
	case change.Removes() == 0 || a.Options.Yes:
		return nil
	case !answerable(c):
		return usage.Errorf("scale deletes servers and asks before, and the standard input is no terminal: --yes answers " +
			"beforehand, --dry-run only says what it would do")
	}
	return confirm(ctx, c, fmt.Sprintf("Type %d to delete %d control plane servers with their disks: ", change.To,
		change.Removes()), strconv.Itoa(change.To))
}

// printChange prints what scaling would do.
func printChange(c *console, change scale.Change, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(c.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(change)
	}
	_, err := fmt.Fprintf(c.stdout, "%s manages the cluster\n%s\n", change.Manager, change)
	return err
}
