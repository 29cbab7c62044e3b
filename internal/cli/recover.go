package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/usage"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// runRecoverQuorum brings an etcd back that has lost its quorum while its servers
// live. It says what it found, and asks, before it wipes anything.
func runRecoverQuorum(ctx context.Context, c *console, a arguments) error {
	if a.Options.DryRun {
		return predictRecovery(ctx, c, a)
	}
	if !a.Options.Yes && !canPrompt(c) {
		return usage.Errorf("recover-quorum asks before it wipes servers, and the standard input is no terminal: --yes " +
			"answers beforehand, --dry-run only looks")
	}
	return operate(ctx, c, a, func(ctx context.Context, r *running) error {
		return operations.RecoverQuorum(ctx, r.Session, r.questions())
	})
}

func newRecoverQuorumCommand(in *invocation) *cobra.Command {
	cmd := in.command("recover-quorum", groupRecovery,
		"rebuild etcd from its most recent surviving member after it lost its quorum", runRecoverQuorum)
	o := &in.arguments.Options
	addDryRunFlag(cmd, o, "only say which member is kept and what is wiped")
	return cmd
}
