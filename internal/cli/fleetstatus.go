package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
)

func newFleetStatusCommand(c *call) *cobra.Command {
	return c.command("status [FILE]", "", "show where the change of each cluster is",
		func(ctx context.Context, c *call) error {
			s, err := operations.Status(ctx, fleetRequest(c, 0))
			if err != nil {
				return err
			}
			return c.print(s, func(out io.Writer, width int) error { return printFleetStatus(out, width, s) })
		})
}

func printFleetStatus(out io.Writer, width int, s operations.Report) (err error) {
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
	text.Table(out, width, []string{"CLUSTER", "CHANGE", "PHASE", "ATTEMPTS", "TIME", "MESSAGE"}, rows...)
	if s.Held != "" {
		_, err = fmt.Fprintf(out, "\nno further cluster is begun: %s\n", s.Held)
	}
	return err
}

// newFleetStopCommand has the rollout begin no further cluster.
func newFleetStopCommand(c *call) *cobra.Command {
	return c.command("stop [FILE]", "", "begin no further cluster of the fleet; Jobs that have begun go on",
		func(ctx context.Context, c *call) error {
			name, err := operations.Stop(ctx, fleetRequest(c, 0))
			if err != nil {
				return err
			}
			return c.say("fleet %s begins no further cluster, and Jobs that have begun go on; to continue: %s", name,
				commandLine(c, "fleet", "apply"))
		})
}
