package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/session"
	"github.com/slipway-k8s/slipway/internal/session/operations"
)

// controllerNames are the words that logs takes.
func controllerNames() []string {
	var names []string
	for _, c := range logs.Controllers() {
		names = append(names, c.Name)
	}
	return names
}

// runLogs shows what the controllers write. An interruption is not an error.
func runLogs(ctx context.Context, c *call, k session.Cluster, o operations.LogsOptions) error {
	out := newLogPrinter(c)
	o.Names, o.Line, o.Note = c.Targets[1:], out.line, out.note
	return operations.Logs(ctx, k, o)
}

func newLogsCommand(c *call) *cobra.Command {
	var own operations.LogsOptions
	cmd := c.command("logs [CONTROLLER…]", groupLook,
		"follow the logs of the controllers, in whichever cluster they run now: "+strings.Join(controllerNames(), ", ")+
			", and add-ons by their names",
		withCluster(func(ctx context.Context, c *call, k session.Cluster) error { return runLogs(ctx, c, k, own) }))
	cmd.Flags().DurationVar(&own.Since, "since", 0, "begin with what is not older than `10m`")
	cmd.Flags().Int64Var(&own.Lines, "tail", -1,
		"begin with the last `N` lines of each container (default 10; all with --since or --no-follow)")
	cmd.Flags().BoolVar(&own.NoFollow, "no-follow", false,
		"end behind what has been written so far, in the order of its times")
	cmd.ValidArgs = controllerNames()
	cmd.ValidArgsFunction = nil
	return cmd
}
