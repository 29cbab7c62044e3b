package cli

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

func newRotateCommand(c *call) *cobra.Command {
	ca := c.command("ca", "",
		"replace the certificate authorities of the Talos and the Kubernetes API, so that certificates of before are "+
			"refused",
		withCluster(runRotateCA))
	addDryRunFlag(ca, &c.arguments, "only say what it would change and restart")
	return c.parent("rotate", groupCluster, "new certificate authorities, so that old kubeconfigs open nothing: ca", ca)
}

// runRotateCA replaces the certificate authorities. It says what it does, and asks, before it changes anything.
func runRotateCA(ctx context.Context, c *call, k session.Cluster) error {
	if c.DryRun {
		f, err := operations.PlanRotateCA(ctx, k)
		if err != nil {
			return err
		}
		return c.print(f, func(io.Writer, int) error { return c.say("%s", strings.Join(f.Lines(), "\n")) })
	}
	return c.operate(ctx, k, func(ctx context.Context, s *session.Session) error {
		return operations.RotateCA(ctx, s, c.questions(s))
	})
}
