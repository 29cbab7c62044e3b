package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/flow"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/doctor"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/platform"
)

func newScaleCommand(in *invocation) *cobra.Command {
	cmd := in.command("scale GROUP COUNT", groupCluster,
		"another number of servers of the control plane, one after another while etcd keeps its quorum, or of a worker pool",
		runScale)
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say what it would do and what that costs")
	addSkipDoctorFlag(cmd, o)
	return cmd
}

// scaling is what the arguments of scale ask for.
type scaling struct {
	count int
	pool  string // empty: the control plane
}

func (s scaling) group(cfg config.Config, tools platform.Tools) scale.Group {
	if s.pool == "" {
		return scale.NewControlPlane(cfg, tools)
	}
	return scale.NewPool(cfg, tools, s.pool)
}

// scaleArguments reads the group and the count, which the configuration has to allow.
func scaleArguments(c *console, a arguments) (s scaling, err error) {
	group, number := a.Targets[1], a.Targets[2]
	pool, ofWorkers := strings.CutPrefix(group, scale.PoolGroup)
	if group != scale.ControlPlaneGroup && (!ofWorkers || pool == "") {
		return s, usage.Errorf("scale knows no group of servers %q: write %s, or %sNAME of a worker pool", group,
			scale.ControlPlaneGroup, scale.PoolGroup)
	}
	s.pool = pool
	if !ofWorkers {
		s.pool = ""
	}
	if s.count, err = strconv.Atoi(number); err != nil {
		return s, usage.Errorf("scale %s: %q is no number of servers", group, number)
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return s, err
	}
	if err := s.set(&cfg.Config); err != nil {
		return s, err
	}
	for _, wrong := range cfg.Validate() {
		return s, usage.Errorf("scale %s %d: %w", group, s.count, wrong)
	}
	return s, nil
}

// set writes the number into a configuration.
func (s scaling) set(cfg *config.Config) error {
	if s.pool == "" {
		cfg.ControlPlaneReplicas = s.count
		return nil
	}
	cfg.Workers = slices.Clone(cfg.Workers)
	at := slices.IndexFunc(cfg.Workers, func(p config.WorkerPool) bool { return p.Name == s.pool })
	if at < 0 {
		cfg.Workers = append(cfg.Workers, config.WorkerPool{Name: s.pool})
		at = len(cfg.Workers) - 1
	}
	if p := cfg.Workers[at]; p.Autoscaled() {
		return usage.Errorf("the cluster autoscaler chooses the number of servers of worker pool %s, from %d to %d: change "+
			"its min and max in bootstrap.yaml, and run bootstrap", p.Name, p.Min, p.Max)
	}
	cfg.Workers[at].Replicas = s.count
	return nil
}

// afterwards is how bootstrap.yaml gets the number; empty: it has it.
func (s scaling) afterwards(cfg config.Config) string {
	const differs = "and later runs name the difference"
	if s.pool == "" {
		if s.count == cfg.ControlPlaneReplicas {
			return ""
		}
		return fmt.Sprintf("set controlPlaneReplicas: %d in bootstrap.yaml: the configuration says %d, %s", s.count,
			cfg.ControlPlaneReplicas, differs)
	}
	for _, p := range cfg.Workers {
		switch {
		case p.Name != s.pool:
		case p.Replicas == s.count:
			return ""
		default:
			return fmt.Sprintf("set replicas: %d of worker pool %s in bootstrap.yaml: the configuration says %d, %s", s.count,
				s.pool, p.Replicas, differs)
		}
	}
	return fmt.Sprintf("the configuration has no worker pool %s: add {name: %s, replicas: %d} to workers in "+
		"bootstrap.yaml, or the next run asks to delete it", s.pool, s.pool, s.count)
}

// runScale changes the number of servers of a group.
func runScale(ctx context.Context, c *console, a arguments) error {
	s, err := scaleArguments(c, a)
	if err != nil {
		return err
	}
	if a.Options.DryRun {
		return look(ctx, c, a, func(cfg config.Config, tools platform.Tools) error {
			change, err := wait.Promptly(ctx, func(ctx context.Context) (scale.Change, error) {
				return s.group(cfg, tools).Examine(ctx, func(string, ...any) {}, s.count)
			})
			if err != nil {
				return err
			}
			return printChange(c, change, a.Options.Output)
		})
	}
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		if err := errors.Join(r.RefuseDuringRecovery(), r.CheckProject(ctx)); err != nil {
			return err
		}
		group := s.group(r.Cfg.Config, r.Tools)
		change, err := group.Examine(ctx, func(string, ...any) {}, s.count)
		if err != nil {
			return err
		}
		for _, says := range linesOf(change) {
			r.Hub.Note("%s", says)
		}
		if err := agreeToScale(ctx, c, a, r, change); err != nil {
			return err
		}
		if change.From != change.To { // else the number was reached, or is waited for
			if err := scale.Begin(r.Tools.Files, change); err != nil {
				return err
			}
		}
		var steps []scale.Step
		err = r.Hub.Task("scale", fmt.Sprintf("%s: %d servers", change.Called(), s.count), func(say flow.Say) (err error) {
			steps, err = group.Run(ctx, say, s.count)
			return err
		})
		if err != nil {
			return fmt.Errorf("%w\nlog: %s", err, r.Files.Log.Name())
		}
		if err := scale.End(r.Tools.Files, change.Group); err != nil {
			return fmt.Errorf("everything is done, but the record of the scaling cannot be removed: %w", err)
		}
		for _, step := range steps {
			r.Hub.Note("%s", step)
		}
		if says := s.afterwards(r.Cfg.Config); says != "" {
			r.Hub.Note("%s", says)
		}
		return nil
	})
}

// agreeToScale has the doctor examine what new control plane servers need, or asks before servers are deleted.
func agreeToScale(ctx context.Context, c *console, a arguments, r *running, change scale.Change) error {
	if change.Group == scale.ControlPlaneGroup && change.Adds() > 0 {
		return errors.Join(r.ExamineFor(ctx, doctor.ForServer), agreeToFlaw(ctx, r, "scale", change.Flaw))
	}
	switch {
	case change.Removes() == 0 || a.Options.Yes:
		return nil
	case !canPrompt(c):
		return usage.Errorf("scale deletes servers and asks before, and the standard input is no terminal: --yes answers " +
			"beforehand, --dry-run only says what it would do")
	}
	return confirm(ctx, c, fmt.Sprintf("Type %d to delete %d servers of %s with their disks: ", change.To,
		change.Removes(), change.Called()), strconv.Itoa(change.To))
}

// agreeToFlaw asks before a rollout that may never end; flaw is why, and empty where nothing is known.
func agreeToFlaw(ctx context.Context, r *running, what, flaw string) error {
	switch {
	case flaw == "" || r.options.Yes:
		return nil
	case !canPrompt(r.console):
		return usage.Errorf("%s may never end, and asks before, and the standard input is no terminal (--yes answers "+
			"beforehand): %s", what, flaw)
	}
	return confirm(ctx, r.console, fmt.Sprintf("%s may never end: %s\nGo ahead? [yes/no] ", what, flaw), "yes")
}

// linesOf is what is said of a change before it is made.
func linesOf(change scale.Change) []string {
	lines := append([]string{change.String()}, change.Notes...)
	if change.Flaw != "" {
		lines = append(lines, "it may never end: "+change.Flaw)
	}
	return lines
}

// printChange prints what scaling would do.
func printChange(c *console, change scale.Change, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(c.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(change)
	}
	_, err := fmt.Fprintf(c.stdout, "%s manages the cluster\n%s\n", change.Manager,
		strings.Join(linesOf(change), "\n"))
	return err
}
