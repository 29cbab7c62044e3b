package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/wait"
	"github.com/slipway-k8s/slipway/internal/operation/scale"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

func newScaleCommand(c *call) *cobra.Command {
	cmd := c.command("scale GROUP COUNT", groupCluster,
		"change the number of servers of the control plane, one at a time so that etcd keeps its quorum, or of a worker pool",
		runScale)
	addDryRunFlag(cmd, &c.arguments, "only say what it would do and what that costs")
	addSkipDoctorFlag(cmd, &c.arguments)
	return cmd
}

// runScale changes the number of servers of a group.
func runScale(ctx context.Context, c *call) error {
	o, err := operations.ParseScale(c.word(1), c.word(2))
	if err != nil {
		return err
	}
	k, err := c.load()
	if err != nil {
		return err
	}
	if err := o.Check(k.Cfg.Config); err != nil {
		return err
	}
	if c.DryRun {
		at, err := k.InspectOnline(ctx)
		if err != nil {
			return err
		}
		change, err := wait.Promptly(ctx, func(ctx context.Context) (scale.Change, error) {
			return o.Group(at.Cfg.Config, at.Tools).Examine(ctx, func(string, ...any) {}, o.Count)
		})
		if err != nil {
			return err
		}
		return c.print(change, func(io.Writer, int) error {
			return c.say("%s manages the cluster\n%s", change.Manager, strings.Join(operations.ScaleLines(change), "\n"))
		})
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		return operations.Scale(ctx, s, o, c.questions(s))
	})
}
