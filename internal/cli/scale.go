package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/config"
	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/session/operations"
	"github.com/slipway-k8s/slipway/platform"
)

func newScaleCommand(in *invocation) *cobra.Command {
	cmd := in.command("scale GROUP COUNT", groupCluster,
		"change the number of servers of the control plane, one at a time so that etcd keeps its quorum, or of a worker pool",
		runScale)
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say what it would do and what that costs")
	addSkipDoctorFlag(cmd, o)
	return cmd
}

// scaling is what the arguments of scale ask for.
type scaling struct{ operations.ScaleOptions }

// scaleArguments reads the group and the count, which the configuration has to allow.
func scaleArguments(c *console, a arguments) (s scaling, err error) {
	group, number := a.Targets[1], a.Targets[2]
	pool, ofWorkers := strings.CutPrefix(group, scale.PoolGroup)
	if group != scale.ControlPlaneGroup && (!ofWorkers || pool == "") {
		return s, usage.Errorf("scale knows no group of servers %q: write %s, or %sNAME of a worker pool", group,
			scale.ControlPlaneGroup, scale.PoolGroup)
	}
	s.Pool = pool
	if !ofWorkers {
		s.Pool = ""
	}
	if s.Count, err = strconv.Atoi(number); err != nil {
		return s, usage.Errorf("scale %s: %q is no number of servers", group, number)
	}
	cfg, err := loadConfig(a, c.environment)
	if err != nil {
		return s, err
	}
	return s, s.Check(cfg.Config)
}

// afterwards is how bootstrap.yaml gets the number; empty: it has it.
func (s scaling) afterwards(cfg config.Config) string {
	const differs = "and later runs name the difference"
	if s.Pool == "" {
		if s.Count == cfg.ControlPlaneReplicas {
			return ""
		}
		return fmt.Sprintf("set controlPlaneReplicas: %d in bootstrap.yaml: the configuration says %d, %s", s.Count,
			cfg.ControlPlaneReplicas, differs)
	}
	for _, p := range cfg.Workers {
		switch {
		case p.Name != s.Pool:
		case p.Replicas == s.Count:
			return ""
		default:
			return fmt.Sprintf("set replicas: %d of worker pool %s in bootstrap.yaml: the configuration says %d, %s", s.Count,
				s.Pool, p.Replicas, differs)
		}
	}
	return fmt.Sprintf("the configuration has no worker pool %s: add {name: %s, replicas: %d} to workers in "+
		"bootstrap.yaml, or the next run asks to delete it", s.Pool, s.Pool, s.Count)
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
				return s.Group(cfg, tools).Examine(ctx, func(string, ...any) {}, s.Count)
			})
			if err != nil {
				return err
			}
			return printChange(c, change, a.Options.Output)
		})
	}
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		if err := operations.Scale(ctx, r.Session, s.ScaleOptions, r.questions()); err != nil {
			return err
		}
		if says := s.afterwards(r.Cfg.Config); says != "" {
			r.Hub.Note("%s", says)
		}
		return nil
	})
}

// printChange prints what scaling would do.
func printChange(c *console, change scale.Change, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(c.stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(change)
	}
	_, err := fmt.Fprintf(c.stdout, "%s manages the cluster\n%s\n", change.Manager,
		strings.Join(operations.ScaleLines(change), "\n"))
	return err
}
