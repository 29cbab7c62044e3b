package cli

import (
	"fmt"
	"io"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/base/text"
	"github.com/slipway-k8s/slipway/internal/cli/ui"
	"github.com/slipway-k8s/slipway/internal/client/hetzner"
	"github.com/slipway-k8s/slipway/internal/operation/destroy"
	"github.com/slipway-k8s/slipway/internal/operation/forecast"
)

// destroyPlan is what destroy prints as JSON before its events.
type destroyPlan struct {
	Kind string `json:"kind"` // "destroy-plan"
	destroy.Deletion
	Monthly hetzner.Price `json:"monthly"` // of what is deleted
}

// printDestroyPlan lists what goes and what stays; as JSON in one line, like the
// events that follow it.
func printDestroyPlan(c *call, d destroy.Deletion) error {
	monthly := hetzner.Total(d.Take)
	if c.Output == "json" {
		return ui.PrintJSONLine(c.stdout, destroyPlan{"destroy-plan", d, monthly})
	}
	if len(d.Take) == 0 {
		fmt.Fprintf(c.stdout, "nothing of cluster %s is at Hetzner\n", d.Cluster)
	} else {
		fmt.Fprintf(c.stdout, "of cluster %s go, for good:\n\n", d.Cluster)
		printResources(c.stdout, c.width(), d.Take)
		fmt.Fprintf(c.stdout, "\ntogether %s a month, VAT included\n", forecast.Total(monthly))
	}
	for _, k := range d.Keep {
		fmt.Fprint(c.stdout, text.Fold(fmt.Sprintf("stays: %s, %s a month; it %s\n", text.Printable(k.String()), k.Price,
			text.Printable(k.Why)), c.width()))
	}
	return nil
}

// leftovers is what leftovers prints as JSON.
type leftovers struct {
	Kind      string             `json:"kind"` // "leftovers"
	Resources []hetzner.Resource `json:"resources"`
	Monthly   hetzner.Price      `json:"monthly"` // of all of them
}

// printLeftovers lists what is there, of every cluster.
func printLeftovers(c *call, resources []hetzner.Resource) error {
	monthly := hetzner.Total(resources)
	if c.Output == "json" {
		if resources == nil {
			resources = []hetzner.Resource{}
		}
		return ui.PrintJSONLine(c.stdout, leftovers{"leftovers", resources, monthly})
	}
	if len(resources) == 0 {
		return c.say("nothing in this project belongs to a cluster")
	}
	printResources(c.stdout, c.width(), resources)
	together := fmt.Sprintf("together %s a month, VAT included; destroy takes a cluster's away: %s\n",
		forecast.Total(monthly), commandLineFor(c, "NAME", targetDestroy))
	_, err := fmt.Fprintf(c.stdout, "\n%s", text.Fold(together, c.width()))
	return err
}

func printResources(out io.Writer, width int, resources []hetzner.Resource) {
	var rows [][]string
	for _, r := range resources {
		because := r.Because
		if r.Shared != "" {
			because += "; but " + r.Shared
		}
		rows = append(rows, []string{
			text.Dash(r.Cluster), string(r.Kind), strconv.FormatInt(r.ID, 10), text.Printable(r.Name), text.Dash(r.Type),
			text.Dash(r.Location), r.Price.String(), text.Printable(because),
		})
	}
	text.Table(out, width, []string{"CLUSTER", "WHAT", "ID", "NAME", "TYPE", "LOCATION", "A MONTH", "BECAUSE OF"}, rows...)
}
