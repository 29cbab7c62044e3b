package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/fleet/operations"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
)

func newFleetPlanCommand(c *call) *cobra.Command {
	var clusters []string
	cmd := c.command("plan [FILE]", "", "show what apply would do with each cluster, and what that costs",
		func(ctx context.Context, c *call) error { return runFleetPlan(ctx, c, clusters) })
	addFleetClusterFlag(cmd, &clusters, "plan only the cluster `NAME`; may be given several times")
	return cmd
}

func runFleetPlan(ctx context.Context, c *call, clusters []string) error {
	p, err := operations.Plan(ctx, fleetRequest(c, 0), clusters)
	if err != nil {
		return err
	}
	return c.print(p, func(io.Writer, int) error {
		if p.Host != "" {
			c.caller().Note("the management cluster is at %s", p.Host)
		}
		printFleetForecast(c, p)
		return nil
	})
}

// printFleetForecast prints what apply would do as a table, and what is to be read before one agrees.
func printFleetForecast(c *call, p *operations.Forecast) {
	var rows [][]string
	for i := range p.Clusters {
		one := &p.Clusters[i]
		rows = append(rows, []string{one.Cluster, one.Summary(), priceOf(one), text.Elapsed(one.Expected.Round(time.Second))})
	}
	text.Table(c.stdout, c.width(), []string{"CLUSTER", "WHAT APPLY DOES", "A MONTH, NEW", "TAKES ABOUT"}, rows...)
	for i := range p.Clusters {
		one := &p.Clusters[i]
		for _, consequence := range one.Consequences {
			mark := " "
			if consequence.Destructive() {
				mark = "!"
			}
			fmt.Fprintf(c.stdout, "%s %s: %s\n", mark, one.Cluster, text.Printable(consequence.Text))
		}
		if one.Unpriced != "" {
			fmt.Fprintf(c.stdout, "  %s: no prices: %s\n", one.Cluster, text.Printable(one.Unpriced))
		}
	}
	more := ""
	if p.Unpriced {
		more = ", and what has no price above"
	}
	fmt.Fprintf(c.stdout, "\nwhat is created costs %.2f %s a month, VAT included%s\n", p.Monthly, p.Currency, more)
}

func priceOf(f *forecast.Forecast) string {
	switch {
	case f.Bill == nil:
		return "not known"
	case f.Bill.Monthly.Unknown && f.Bill.Monthly.Monthly > 0:
		return fmt.Sprintf("%.2f %s and more", f.Bill.Monthly.Monthly, f.Bill.Monthly.Currency)
	}
	return f.Bill.Monthly.String()
}
