package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetStatusCommand(in *invocation) *cobra.Command {
	return in.command("status [FILE]", "", "show where the change of each cluster is",
		func(ctx context.Context, c *console, a arguments) error {
			s, err := operations.Status(ctx, fleetRequest(c, a, 0))
			if err != nil {
				return err
			}
			if a.Options.Output == "json" {
				return ui.PrintJSON(c.stdout, s)
			}
			printFleetStatus(c, s)
			return nil
		})
}

func printFleetStatus(c *console, s operations.Report) {
	var rows [][]string
	for _, one := range s.Status {
		took, says := "-", one.Log
		if one.Began != nil {
			until := time.Now()
			if one.Ended != nil {
				until = *one.Ended
			}
			took = text.Elapsed(until.Sub(*one.Began).Round(time.Second))
		}
		if one.Message != "" {
			says = lastWords(one.Message)
		}
		rows = append(rows, []string{one.Cluster, one.Action, string(one.Phase), strconv.Itoa(one.Attempts), took,
			text.Dash(text.Printable(says))})
	}
	text.Table(c.stdout, c.width(), []string{"CLUSTER", "CHANGE", "PHASE", "ATTEMPTS", "TIME", "MESSAGE"}, rows...)
	if s.Held != "" {
		fmt.Fprintf(c.stdout, "\nno further cluster is begun: %s\n", s.Held)
	}
}

// newFleetStopCommand has the rollout begin no further cluster.
func newFleetStopCommand(in *invocation) *cobra.Command {
	return in.command("stop [FILE]", "", "begin no further cluster of the fleet; Jobs that have begun go on",
		func(ctx context.Context, c *console, a arguments) error {
			name, err := operations.Stop(ctx, fleetRequest(c, a, 0))
			if err != nil {
				return err
			}
			fmt.Fprintf(c.stdout, "fleet %s begins no further cluster, and Jobs that have begun go on; to continue: %s\n", name,
				commandLine(c, "fleet", "apply"))
			return nil
		})
}
