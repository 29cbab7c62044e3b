package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runRecoverQuorum brings an etcd back that has lost its quorum while its servers
// live. It says what it found, and asks, before it wipes anything.
func runRecoverQuorum(ctx context.Context, c *call) error {
	if !c.DryRun {
		if err := c.refuseUnasked("recover-quorum asks before it wipes servers", "--dry-run only looks"); err != nil {
			return err
		}
	}
	k, err := c.load()
	if err != nil {
		return err
	}
	if c.DryRun {
		f, err := operations.PlanQuorum(ctx, k, func() *session.Hub { return c.hub("recover-quorum") })
		if err != nil {
			return err
		}
		return c.printLine(f, func(out io.Writer, width int) error {
			_, err := io.WriteString(out, text.Fold(c.hide.Text(f.String()), width))
			return err
		})
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		return operations.RecoverQuorum(ctx, s, c.questions(s))
	})
}

func newRecoverQuorumCommand(c *call) *cobra.Command {
	cmd := c.command("recover-quorum", groupRecovery,
		"rebuild etcd from its most recent surviving member after it lost its quorum", runRecoverQuorum)
	addDryRunFlag(cmd, &c.arguments, "only say which member is kept and what is wiped")
	return cmd
}
